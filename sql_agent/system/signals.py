"""Turn the first interrupt into a request to stop; the second ends the process. End processes with their parent.

An interrupt is Ctrl-C, SIGTERM, or a terminal that is closed (SIGHUP).
"""

from __future__ import annotations

import asyncio
import ctypes
import os
import select
import signal
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import NoReturn

STOPPING = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
INTERRUPTED = 130
_PR_SET_PDEATHSIG = 1  # of prctl(2)
_SHOW_CURSOR = b"\x1b[?25h"  # a progress bar hides it


def stopping_signals() -> list[signal.Signals]:
    """Return the signals that stop this program; not SIGHUP where it is ignored, as under nohup.

    SIGINT is one of them even where it is ignored, as in a script's background process: there `kill -INT` asks to stop.
    """
    is_kept = signal.getsignal(signal.SIGHUP) is signal.SIG_IGN
    return [number for number in STOPPING if not (is_kept and number is signal.SIGHUP)]


def say_interrupted() -> None:
    """Print that this process was interrupted."""
    print("Interrupted.", file=sys.stderr, flush=True)


def end_interrupted(say: Callable[[], None] = lambda: None) -> NoReturn:
    """Call `say` and end this process at once with exit code 130, without Python's own end.

    Python's end waits for threads, prints a traceback when another interrupt comes meanwhile, and ends threads inside
    torch in a way that makes C++ abort. Child processes notice that this process is gone, and end too.
    """
    for number in STOPPING:
        signal.signal(number, signal.SIG_IGN)
    try:
        if os.isatty(1):
            os.write(1, _SHOW_CURSOR)
        say()
        sys.stdout.flush()
        sys.stderr.flush()
    finally:  # even when a stream is gone or in use
        os._exit(INTERRUPTED)


@contextmanager
def handled_signals(handler: Callable[[], None], *, again: Callable[[], None] = say_interrupted) -> Iterator[None]:
    """Call `handler` at the first stopping signal inside the context, which needs a running event loop.

    The second signal, also after the context, calls `again` and ends this process at once with exit code 130. A second
    SIGHUP is ignored, because closing a terminal can send two. Without any signal the handlers from before are
    restored.
    """
    loop = asyncio.get_running_loop()
    before = {number: signal.getsignal(number) for number in stopping_signals()}
    is_asked = False

    def once() -> None:
        nonlocal is_asked
        is_asked = True
        for number in before:
            loop.remove_signal_handler(number)
            is_repeated = number is signal.SIGHUP
            signal.signal(number, signal.SIG_IGN if is_repeated else lambda *_: end_interrupted(again))
        handler()

    def hang_up(*_: object) -> None:
        _drop_output()  # at once, because the loop may first run a task that prints to the closed terminal
        loop.call_soon_threadsafe(once)

    for number in before:
        if number is signal.SIGHUP:
            signal.signal(number, hang_up)
        else:
            loop.add_signal_handler(number, once)
    try:
        yield
    finally:
        for number, handler_before in before.items():
            if not is_asked:
                loop.remove_signal_handler(number)
                signal.signal(number, handler_before)


def die_with_parent() -> None:
    """Ask the kernel to send this process SIGTERM when its parent dies (Linux only; elsewhere nothing happens)."""
    if not sys.platform.startswith("linux"):
        return
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGTERM, 0, 0, 0)


def go_on(pid: int) -> None:
    """Continue the child `pid` where a signal has stopped it, because a stopped process cannot end when it is asked."""
    with suppress(ProcessLookupError):
        os.kill(pid, signal.SIGCONT)


def _drop_output() -> None:
    """Drop further output to a closed terminal or a pipe without a reader: a write there raises, and nothing is saved.

    Other output, such as a file, is still written.
    """
    output = select.poll()
    for number in (1, 2):
        output.register(number, 0)
    nowhere = os.open(os.devnull, os.O_WRONLY)
    for number, state in output.poll(0):
        if state & (select.POLLHUP | select.POLLERR):
            os.dup2(nowhere, number)
    os.close(nowhere)
