"""Turn the first interrupt into a request to stop: Ctrl-C, SIGTERM, or a terminal that is closed."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager

STOPPING = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


def stopping_signals() -> list[signal.Signals]:
    """Return the signals that stop this program: not that of a closed terminal where it is ignored, as under nohup.

    SIGINT is one of them also where it is ignored, as in what a script starts in the background: there `kill -INT`
    asks for the end.
    """
    is_kept = signal.getsignal(signal.SIGHUP) is signal.SIG_IGN
    return [number for number in STOPPING if not (is_kept and number is signal.SIGHUP)]


@contextmanager
def handled_signals(handler: Callable[[], None]) -> Iterator[None]:
    """Call `handler` at the first signal inside the context that asks for the end; the next is handled as before it.

    Must be entered in a running event loop.
    """
    loop = asyncio.get_running_loop()
    before = {number: signal.getsignal(number) for number in stopping_signals()}

    def restore() -> None:
        for number, handler_before in before.items():
            if loop.remove_signal_handler(number):
                signal.signal(number, handler_before)

    def once() -> None:
        restore()
        handler()

    for number in before:
        loop.add_signal_handler(number, once)
    try:
        yield
    finally:
        restore()
