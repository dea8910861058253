"""Turn the first interrupt into a request to stop."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager

_NUMBERS = (signal.SIGINT, signal.SIGTERM)


@contextmanager
def handled_signals(handler: Callable[[], None]) -> Iterator[None]:
    """Call `handler` at the first SIGINT or SIGTERM inside the context; a second one ends the process as usual.

    Must be entered in a running event loop.
    """
    loop = asyncio.get_running_loop()

    def restore() -> None:
        for number in _NUMBERS:
            loop.remove_signal_handler(number)

    def once() -> None:
        restore()
        handler()

    for number in _NUMBERS:
        loop.add_signal_handler(number, once)
    try:
        yield
    finally:
        restore()
