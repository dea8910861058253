"""Serve an ASGI app on a bound socket with uvicorn."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import AsyncIterator, Collection
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Literal

import uvicorn

from sql_agent.errors import TrainingError
from sql_agent.system.tokens import AccessCheck

if TYPE_CHECKING:
    from starlette.types import ASGIApp

# With uvicorn's default of 5 s, connections would be closed between two training steps.
_KEEP_ALIVE_S = 3600
_STOP_S = 5.0  # longest wait for the server to stop


def uvicorn_server(
    app: ASGIApp,
    token: str | None,
    *,
    open_paths: Collection[str] = (),
    grace_s: int = 1,
    lifespan: Literal["auto", "off"] = "off",
    log_level: str = "warning",
) -> uvicorn.Server:
    """Return a server for `app`. Requests need the bearer `token`, if there is one, except for the paths `open_paths`.

    At the end the server waits `grace_s` seconds for open requests. With `lifespan` "auto" the server calls the startup
    and shutdown handlers of `app`.
    """
    config = uvicorn.Config(
        AccessCheck(app, token, open_paths=open_paths),
        interface="asgi3",
        log_level=log_level,
        access_log=False,
        proxy_headers=False,
        lifespan=lifespan,
        timeout_graceful_shutdown=grace_s,
        timeout_keep_alive=_KEEP_ALIVE_S,
    )
    return uvicorn.Server(config)


@asynccontextmanager
async def served(server: uvicorn.Server, sock: socket.socket) -> AsyncIterator[None]:
    """Run `server` on the running event loop during the block. Raises TrainingError if it cannot start."""
    # Not serve(), because serve() installs signal handlers.
    serving = asyncio.create_task(server._serve(sockets=[sock]))
    while not server.started:
        if serving.done():
            address = ":".join(map(str, sock.getsockname()[:2]))
            raise TrainingError(f"cannot serve at {address}: {serving.exception()!r}", hint="choose another port")
        await asyncio.sleep(0.01)
    try:
        yield
    finally:
        server.should_exit = True
        await asyncio.wait([serving], timeout=_STOP_S)
