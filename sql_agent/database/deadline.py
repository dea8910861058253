"""End a statement at its deadline, inside the worker process, and let only a few slow statements run at once."""

from __future__ import annotations

import fcntl
import signal
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import IO

from sql_agent.system.resources import usable_cores

# Slow statements take turns, so that a fast statement finds a free core. Without turns, the p99 latency of a fast
# statement next to 32 slow ones on two cores was 4.7 s. A waiting statement is paused inside SQLite and loses no work.
_SLOW_AT_ONCE = max(1, usable_cores() - 1)
_FAST_S = 0.001  # CPU time that a statement may use without a turn; a look-up by key needs less
_TURN_S = 0.02  # duration of a statement's first turn while another statement waits; the n-th turn is n times as long
_LONGEST_TURN_S = 0.08
_PAUSE_S = 0.02  # pause between two attempts to get a turn
_WAITING = _SLOW_AT_ONCE  # offset of the byte that a statement locks while it waits for its first turn


class OutOfTime(BaseException):
    """The deadline has passed. A BaseException, so that `except Exception` does not catch it."""


class Deadline:
    """The deadline of one statement: `due` is in seconds of the clock `time.monotonic()`.

    The slow statements of all workers take turns in a multilevel feedback queue: the next turn goes to a waiting
    statement with the fewest turns so far. Thus a search that needs two turns overtakes statements that run until their
    deadline. The queue consists of locks on bytes of the file `turns`, which all workers share; the kernel releases the
    locks of a killed worker. A lock on one of the first `_SLOW_AT_ONCE` bytes is a turn. A shared lock on the byte
    `_WAITING + n` means that a statement with `n` turns so far waits.
    """

    def __init__(self, due: float, turns: IO[bytes]) -> None:
        self._due = due
        self._turns = turns
        self._slow_at = time.process_time() + _FAST_S
        self._taken = 0  # number of turns so far
        self._turn_ends = 0.0  # when the turn ends, by time.monotonic(); 0 without a turn

    def ends_statement(self) -> bool:
        """Return whether the deadline has passed. A slow statement first waits for its turn."""
        if self._turn_ends:
            if time.monotonic() > self._turn_ends and self._others_wait(self._taken):
                self.end_turn()
                time.sleep(_PAUSE_S)  # time for another statement to take the turn
                self._wait_for_turn()
        elif time.process_time() > self._slow_at:
            self._wait_for_turn()
        return time.monotonic() > self._due

    def end_turn(self) -> None:
        """Release this statement's turn, so that another slow statement can run."""
        fcntl.lockf(self._turns, fcntl.LOCK_UN)
        self._turn_ends = 0.0

    @contextmanager
    def enforced(self) -> Iterator[None]:
        """Raise OutOfTime inside the `with` block once the deadline has passed. Works on the main thread only.

        The time of sqlglot's parser, which nothing else ends, doubles with each level of `date(date(…`.
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
        offset = _WAITING + self._taken
        fcntl.lockf(self._turns, fcntl.LOCK_SH, 1, offset)
        while (left := self._due - time.monotonic()) > 0:
            if not self._others_wait(self._taken - 1) and any(map(self._locks, range(_SLOW_AT_ONCE))):
                break
            time.sleep(min(_PAUSE_S, left))
        fcntl.lockf(self._turns, fcntl.LOCK_UN, 1, offset)
        self._taken += 1
        self._turn_ends = time.monotonic() + min(self._taken * _TURN_S, _LONGEST_TURN_S)

    def _others_wait(self, most: int) -> bool:
        """Return whether another statement with at most `most` turns so far is waiting."""
        if most >= 0:
            if not self._locks(_WAITING, most + 1):
                return True
            fcntl.lockf(self._turns, fcntl.LOCK_UN, most + 1, _WAITING)
        return False

    def _locks(self, start: int, length: int = 1) -> bool:
        """Try to lock `length` bytes from offset `start`. Return False if another worker has locked one of them."""
        try:
            fcntl.lockf(self._turns, fcntl.LOCK_EX | fcntl.LOCK_NB, length, start)
        except OSError:
            return False
        return True
