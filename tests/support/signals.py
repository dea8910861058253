"""Keep what a test does to the handling of signals from the tests after it."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from contextlib import contextmanager

from sql_agent.system.process import STOPPING


@contextmanager
def restored_signals() -> Iterator[None]:
    """Handle signals after the context as before: after a first interrupt the next would end the tests."""
    before = {number: signal.getsignal(number) for number in STOPPING}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
