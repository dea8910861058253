"""Turn the first interrupt into a request to stop."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager

_NUMBERS = (signal.SIGINT, signal.SIGTERM)


@contextmanager
def handled_signals(handler: Callable[[], None]) -> Iterator[None]:
    """Call `handler` at the first SIGINT or SIGTERM inside the context; a second one is handled as before it.

    Must be entered in a running event loop.
    """
    loop = asyncio.get_running_loop()
    before = {number: signal.getsignal(number) for number in _NUMBERS}

    def restore() -> None:
        for number in _NUMBERS:
            if loop.remove_signal_handler(number):
                signal.signal(number, before[number])

    def once() -> None:
        restore()
        handler()

    for number in _NUMBERS:
        loop.add_signal_handler(number, once)
    try:
        yield
    finally:
        restore()
