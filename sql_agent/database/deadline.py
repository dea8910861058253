"""End a statement in time, inside its worker process, and let few statements be slow at once."""

from __future__ import annotations

import fcntl
import signal
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress

from sql_agent.system.resources import usable_cores

# Statements that turn out to be slow take turns, so that fast ones find a processor: on two busy cores with 32 slow
# statements the p99 of a fast one was 4.7 s without turns. A slow statement waits inside SQLite, and loses no work.
_SLOW_AT_ONCE = max(1, usable_cores() - 1)
# Processor time after which a statement is slow; most take less than half of it. A larger allowance shows in the p99 of
# fast ones: statements that waited end at a common deadline, and the next ones then use it all at once.
_FAST_S = 0.005
_TURN_S = 0.2  # so that a statement which runs to its deadline does not keep the others from ending in time
_LOOK_S = 0.02  # between two looks for a free turn


class OutOfTime(BaseException):
    """The deadline has passed. No Exception, so that code which survives any fault does not survive this one."""


class Deadline:
    """When a statement must end, by `time.monotonic()`.

    `turns` is a file that all workers share. A slow statement locks one of its first bytes; the kernel unlocks the byte
    when the worker is killed.
    """

    def __init__(self, due: float, turns: int) -> None:
        self._due = due
        self._turns = turns
        self._slow_at = time.process_time() + _FAST_S
        self._has_turn = False
        self._turn_ends = 0.0

    def ends_statement(self) -> bool:
        """Return whether the running statement is late, after waiting for its turn if the statement is slow."""
        if self._has_turn and time.monotonic() > self._turn_ends:
            self.end_turn()
            time.sleep(_LOOK_S)  # a statement that waits takes the turn meanwhile
        while not self._has_turn and time.process_time() > self._slow_at and (left := self._due - time.monotonic()) > 0:
            self._has_turn = any(map(self._lock, range(_SLOW_AT_ONCE)))
            self._turn_ends = time.monotonic() + _TURN_S
            if not self._has_turn:
                time.sleep(min(_LOOK_S, left))
        return time.monotonic() > self._due

    def end_turn(self) -> None:
        """Let another slow statement run."""
        if self._has_turn:
            fcntl.lockf(self._turns, fcntl.LOCK_UN)
            self._has_turn = False

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
            signal.setitimer(signal.ITIMER_REAL, max(self._due - time.monotonic(), 0.001))
            yield
        finally:
            is_inside = False
            signal.setitimer(signal.ITIMER_REAL, 0)

    def _lock(self, turn: int) -> bool:
        with suppress(OSError):  # another worker has locked it
            fcntl.lockf(self._turns, fcntl.LOCK_EX | fcntl.LOCK_NB, 1, turn)
            return True
        return False
