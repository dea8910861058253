"""End a statement at its deadline, inside the worker process, and let only a few slow statements run at once."""

from __future__ import annotations

import fcntl
import signal
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import IO

from sql_agent.system.resources import usable_cores

# Slow statements take turns, so that a fast statement finds a free core: without turns, a fast statement beside 32 slow
# ones on two busy cores had a p99 of 4.7 s. A slow statement waits inside SQLite and loses no work.
_SLOW_AT_ONCE = max(1, usable_cores() - 1)
_FAST_S = 0.005  # processor time that a statement may use without a turn; most statements need less than half of it
_TURN_S = 0.2
_LOOK_S = 0.02  # between two looks for a free turn
_WAITING = _SLOW_AT_ONCE  # the byte that every waiting worker locks, after one byte for each turn


class OutOfTime(BaseException):
    """The deadline has passed. Not an Exception, so that `except Exception` does not catch it."""


class Deadline:
    """The deadline of one statement, `due` seconds of `time.monotonic()`.

    All workers share the file `turns`. A slow statement locks one of its first bytes; the kernel releases the lock of a
    worker that is killed. A turn ends after 0.2 s if another statement waits, so that all can end in time.
    """

    def __init__(self, due: float, turns: IO[bytes]) -> None:
        self._due = due
        self._turns = turns
        self._slow_at = time.process_time() + _FAST_S
        self._turn_ends = 0.0  # 0 without a turn

    def ends_statement(self) -> bool:
        """Return whether the statement is late. A slow statement first waits for its turn."""
        if self._turn_ends:
            if time.monotonic() > self._turn_ends and self._others_wait():
                self.end_turn()
                time.sleep(_LOOK_S)  # a statement that waits takes the turn meanwhile
        elif time.process_time() > self._slow_at:
            self._wait_for_turn()
        return time.monotonic() > self._due

    def end_turn(self) -> None:
        """Let another slow statement run."""
        fcntl.lockf(self._turns, fcntl.LOCK_UN)
        self._turn_ends = 0.0

    @contextmanager
    def enforced(self) -> Iterator[None]:
        """Raise OutOfTime in the Python code inside the context, on the main thread, once the deadline has passed.

        sqlglot's parse time doubles with each level of nested type words, as in `date(date(…`.
        """
        is_inside = True

        def end(_signal: int, _frame: object) -> None:
            if is_inside:
                raise OutOfTime

        signal.signal(signal.SIGALRM, end)
        try:
            signal.setitimer(signal.ITIMER_REAL, max(self._due - time.monotonic(), 0.001))
            yield
        finally:
            is_inside = False
            signal.setitimer(signal.ITIMER_REAL, 0)

    def _wait_for_turn(self) -> None:
        fcntl.lockf(self._turns, fcntl.LOCK_SH, 1, _WAITING)
        while (left := self._due - time.monotonic()) > 0 and not any(map(self._locks, range(_SLOW_AT_ONCE))):
            time.sleep(min(_LOOK_S, left))
        fcntl.lockf(self._turns, fcntl.LOCK_UN, 1, _WAITING)
        self._turn_ends = time.monotonic() + _TURN_S

    def _others_wait(self) -> bool:
        if not self._locks(_WAITING):
            return True
        fcntl.lockf(self._turns, fcntl.LOCK_UN, 1, _WAITING)
        return False

    def _locks(self, byte: int) -> bool:
        """Lock `byte` of the file. Return False when another worker has locked that byte."""
        try:
            fcntl.lockf(self._turns, fcntl.LOCK_EX | fcntl.LOCK_NB, 1, byte)
        except OSError:
            return False
        return True
