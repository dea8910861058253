"""Turn the first interrupt into a request to stop, and let the second end the process.

An interrupt is Ctrl-C, SIGTERM, or a terminal that is closed.
"""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import NoReturn

STOPPING = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
INTERRUPTED = 130
_SHOW_CURSOR = b"\x1b[?25h"  # which a progress bar hides


def stopping_signals() -> list[signal.Signals]:
    """Return the signals that stop this program: not that of a closed terminal where it is ignored, as under nohup.

    SIGINT is one of them also where it is ignored, as in what a script starts in the background: there `kill -INT`
    asks for the end.
    """
    is_kept = signal.getsignal(signal.SIGHUP) is signal.SIG_IGN
    return [number for number in STOPPING if not (is_kept and number is signal.SIGHUP)]


def say_interrupted() -> None:
    """Print that this process was interrupted."""
    print("Interrupted.", file=sys.stderr, flush=True)


def end_interrupted(say: Callable[[], None] = lambda: None) -> NoReturn:
    """Call `say`, and end this process at once with exit code 130, without what Python does at its end.

    That waits for threads, prints a traceback when another interrupt comes meanwhile, and ends threads inside of torch
    in a way that makes C++ abort. Child processes see that this one is gone, and end too.
    """
    for number in STOPPING:
        signal.signal(number, signal.SIG_IGN)
    try:
        if os.isatty(1):
            os.write(1, _SHOW_CURSOR)
        say()
        sys.stdout.flush()
        sys.stderr.flush()
    finally:  # also when a stream is gone, or was being written to
        os._exit(INTERRUPTED)


@contextmanager
def handled_signals(handler: Callable[[], None], *, again: Callable[[], None] = say_interrupted) -> Iterator[None]:
    """Call `handler` at the first signal inside the context that asks for the end.

    The next one, also after the context, calls `again` and ends this process at once with exit code 130, unless it is
    that of a closed terminal, which can come twice. Without any, signals are handled afterwards as before. Must be
    entered in a running event loop.
    """
    loop = asyncio.get_running_loop()
    before = {number: signal.getsignal(number) for number in stopping_signals()}

    def once() -> None:
        for number in before:
            loop.remove_signal_handler(number)
            is_repeated = number is signal.SIGHUP
            signal.signal(number, signal.SIG_IGN if is_repeated else lambda *_: end_interrupted(again))
        handler()

    for number in before:
        loop.add_signal_handler(number, once)
    try:
        yield
    finally:
        for number, handler_before in before.items():
            if loop.remove_signal_handler(number):
                signal.signal(number, handler_before)
