"""Serve the app of a page in this process."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager

from starlette.types import ASGIApp

from sql_agent.system.servers import bind, uvicorn_server


@contextmanager
def served_app(app: ASGIApp) -> Iterator[str]:
    """Serve `app` on a free port inside the context; yields its address, which ends in /."""
    server = uvicorn_server(app, None)
    with bind() as sock:
        thread = threading.Thread(target=lambda: server.run(sockets=[sock]))
        thread.start()
        while not server.started:
            time.sleep(0.01)
        yield f"http://127.0.0.1:{sock.getsockname()[1]}/"
        server.should_exit = True
        thread.join()
