"""End a statement in time, inside its worker process."""

from __future__ import annotations

import math
import signal
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass


class SlowStatementError(Exception):
    """A statement has used the processor time of a worker for fast statements: run it again in another one."""


class OutOfTime(BaseException):
    """The deadline has passed. No Exception, so that code which survives any fault does not survive this one."""


@dataclass(frozen=True)
class Deadline:
    """When a statement must end, by `time.monotonic()`, and when it is slow, by `time.process_time()`."""

    due: float
    slow_at: float = math.inf

    def passed(self) -> bool:
        """Return whether the deadline has passed."""
        return time.monotonic() > self.due

    def ends_statement(self) -> bool:
        """Return whether a running statement must be interrupted: late, or too slow for this worker."""
        return time.process_time() > self.slow_at or time.monotonic() > self.due

    @contextmanager
    def enforced(self) -> Iterator[None]:
        """Raise OutOfTime in the code inside, which must be Python of the main thread, once the deadline has passed.

        sqlglot's parse time doubles with each level of nested type words, as in `date(date(…`.
        """
        is_inside = True

        def end(_signal: int, _frame: object) -> None:
            if is_inside:
                raise OutOfTime

        signal.signal(signal.SIGALRM, end)
        try:
            signal.setitimer(signal.ITIMER_REAL, max(self.due - time.monotonic(), 0.001))
            yield
        finally:
            is_inside = False
            signal.setitimer(signal.ITIMER_REAL, 0)
