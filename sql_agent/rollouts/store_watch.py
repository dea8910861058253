"""Say when a store that another process serves does not answer, and when it answers again."""

from __future__ import annotations

import asyncio
import http.client
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress

from sql_agent.rollouts.run_role import DIRECTLY, HEALTH_PATH
from sql_agent.system.outage import Outage

_PAUSE_S = 0.5
_TIMEOUT_S = 1.5
_SILENT_S = 3.5  # two requests that time out, or refused ones for as long: a store may be busy, or restart


@contextmanager
def watched_store(address: str, who: str, say: Callable[[str], None]) -> Iterator[None]:
    """Say inside the context when the store at `address`, for which `who` waits, does not answer; and when it does.

    Must be entered in a running event loop, on which `say` is called. A thread asks the store, because to an event loop
    that is busy for seconds every store would seem silent.
    """
    loop, closed = asyncio.get_running_loop(), threading.Event()

    def say_inside(text: str) -> None:
        if not closed.is_set():
            say(text)

    def say_on_loop(text: str) -> None:
        with suppress(RuntimeError):  # the loop has just been closed
            loop.call_soon_threadsafe(say_inside, text)

    outage = Outage(f"The store at {address}", say_on_loop)
    threading.Thread(target=_ask, args=(address, who, outage, closed), name="store watch", daemon=True).start()
    try:
        yield
    finally:
        closed.set()


def _ask(address: str, who: str, outage: Outage, closed: threading.Event) -> None:
    answered, failed = time.monotonic(), 0
    while not closed.wait(_PAUSE_S):
        try:
            DIRECTLY.open(address + HEALTH_PATH, timeout=_TIMEOUT_S).close()
        except (OSError, http.client.HTTPException) as error:
            failed += 1
            silent_s = time.monotonic() - answered
            if failed > 1 and silent_s >= _SILENT_S:  # one request fails too when this process itself was stopped
                why = getattr(error, "reason", error)
                outage.begin(f"does not answer, for {silent_s:.0f} s now ({why}); {who} waits for it")
        else:
            answered, failed = time.monotonic(), 0
            outage.end()
