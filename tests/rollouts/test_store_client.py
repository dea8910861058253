"""Whoever waits for a store that another process serves says so, once, and says when it answers again."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

from sql_agent.rollouts import run_role
from sql_agent.rollouts.run_role import watched_store


class Store(BaseHTTPRequestHandler):
    """A store that answers while `goes_on` is set."""

    goes_on = threading.Event()

    def do_GET(self) -> None:
        self.goes_on.wait()
        self.send_response(200)
        self.end_headers()

    def log_message(self, *_: object) -> None:
        """Print nothing."""


@pytest.fixture
def address(monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    monkeypatch.setattr(run_role, "_PAUSE_S", 0.02)
    monkeypatch.setattr(run_role, "_WATCH_TIMEOUT_S", 0.2)
    monkeypatch.setattr(run_role, "_SILENT_S", 0.3)
    Store.goes_on.set()
    server = ThreadingHTTPServer(("127.0.0.1", 0), Store)
    server.daemon_threads = True
    server.handle_error = lambda *_: None  # type: ignore[method-assign]  # of clients that did not wait
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield f"http://127.0.0.1:{server.server_port}"
    Store.goes_on.set()
    server.shutdown()
    server.server_close()


async def until(found: Callable[[], bool]) -> None:
    async with asyncio.timeout(10):
        while not found():  # noqa: ASYNC110  nothing tells
            await asyncio.sleep(0.01)


async def test_a_store_that_falls_silent_is_reported_once_and_again_when_it_answers(address: str) -> None:
    said: list[str] = []
    with watched_store(address, "the run", said.append):
        await asyncio.sleep(0.5)
        assert said == [], "it answers"
        Store.goes_on.clear()
        await until(lambda: bool(said))
        await asyncio.sleep(0.5)
        assert said == [f"The store at {address} does not answer, for 0 s now (timed out); the run waits for it"]
        Store.goes_on.set()
        await until(lambda: len(said) > 1)
    assert said[1:] == [f"The store at {address} answers again."]


async def test_nothing_is_said_of_a_store_any_more_once_nobody_waits_for_it(address: str) -> None:
    said: list[str] = []
    with watched_store(address, "the run", said.append):
        Store.goes_on.clear()
        await asyncio.sleep(0.1)
    await asyncio.sleep(0.6)
    assert said == []
