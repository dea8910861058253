"""Import large packages without the cost of garbage collection, and without losing an interrupt."""

from __future__ import annotations

import gc
import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType


@contextmanager
def slow_imports() -> Iterator[None]:
    """Exclude all objects that are created inside the context, such as imported modules, from garbage collection.

    Modules stay until the process ends. Collections that examine their objects took half of the time of importing
    agent-lightning, and would copy the memory pages that the runners share with their parent (see `gc.freeze`).
    An interrupt inside the context ends it, as `lasting_interrupts` says.
    """
    gc.disable()
    try:
        with lasting_interrupts():
            yield
    finally:
        gc.freeze()
        gc.enable()


@contextmanager
def lasting_interrupts() -> Iterator[None]:
    """Raise KeyboardInterrupt at the end of the context when SIGINT or SIGTERM raised it inside, and it was lost.

    Python's import system runs a callback after each import, and drops what is raised there; about one of a thousand
    interrupts during imports came in one. Signals that something else than a KeyboardInterrupt answers are left alone.
    """
    came = False

    def interrupt(number: int, frame: FrameType | None) -> None:
        nonlocal came
        came = True
        signal.default_int_handler(number, frame)

    taken: list[signal.Signals] = []
    if threading.current_thread() is threading.main_thread():  # no other may set handlers
        taken = [s for s in (signal.SIGINT, signal.SIGTERM) if signal.getsignal(s) is signal.default_int_handler]
    for number in taken:
        signal.signal(number, interrupt)
    try:
        yield
    finally:
        for number in taken:
            signal.signal(number, signal.default_int_handler)
        if came:  # also in place of the error that a half imported module caused
            raise KeyboardInterrupt
