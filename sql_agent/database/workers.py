"""Keep the workers of a database: start them when they are needed, kill those that are late, end them all."""

from __future__ import annotations

import atexit
import contextlib
import json
import logging
import os
import pickle
import signal
import threading
import time
import weakref
from collections.abc import Iterator
from contextlib import contextmanager
from multiprocessing.connection import Connection as Pipe
from typing import Any

from sql_agent.database.answers import DATABASE_CHANGED
from sql_agent.database.database import MAX_QUERIES
from sql_agent.database.fork_server import ForkServer
from sql_agent.database.source import Opened
from sql_agent.errors import DatabaseFileError, QueryError

logger = logging.getLogger(__name__)

# Statements that turned out to be slow run in few workers of low priority, so that fast ones find a processor. On two
# busy cores with 32 slow statements the p99 of a fast one was 4.7 s when each slow one had a process, and 0.04 to 0.3 s
# so; most of the rest is the 20 ms that each slow one takes in a fast worker, all 32 at once after a common deadline.
_SLOW_AT_ONCE = max(2, os.cpu_count() or 1)
_SLOWED_BY = 5  # steps of niceness
_LEAST_PRIORITY = 19
_KEPT_IDLE_S = 10.0  # for which a worker is kept that nobody needs; to start one takes some 10 ms of a processor
_START_S = 60.0  # that a worker may take to start, which on a busy machine includes importing sqlglot
_GRACE_S = 0.2  # after the deadline, in which a worker should have answered by itself


class Worker:
    """A process that answers one statement at a time."""

    def __init__(self, pipe: Pipe, *, max_reply_bytes: int) -> None:
        self._pipe = pipe
        self._max_reply_bytes = max_reply_bytes
        self.pid = 0
        self.is_alive = True
        self.is_new = True
        self.idle_since = 0.0

    def ask(self, request: object, due: float) -> Any:
        """Return the reply to a request that is due at `due`.

        Raises ConnectionError when the worker had ended before it got the request, TimeoutError when it is late,
        EOFError when it ends meanwhile, and ValueError for what is not a reply.
        """
        self._pipe.send_bytes(json.dumps(request).encode("ascii"))
        return self.receive(due + _GRACE_S)

    def receive(self, due: float) -> Any:
        """Return the next message. Raises as `ask` does."""
        if not self._pipe.poll(max(due - time.monotonic(), 0)):
            raise TimeoutError
        try:
            return json.loads(self._pipe.recv_bytes(self._max_reply_bytes))
        except ConnectionError as error:
            raise EOFError from error
        except OSError as error:
            raise ValueError("the reply is too long") from error

    def slow_down(self) -> None:
        """Give the process a lower priority, for good."""
        with contextlib.suppress(ProcessLookupError):  # it has just ended
            slowed = os.getpriority(os.PRIO_PROCESS, self.pid) + _SLOWED_BY
            os.setpriority(os.PRIO_PROCESS, self.pid, min(slowed, _LEAST_PRIORITY))

    def end(self) -> None:
        """End the process, which is idle."""
        self.is_alive = False
        self._pipe.close()

    def kill(self) -> None:
        """End the process, whatever it does."""
        if self.is_alive:
            self.end()
            with contextlib.suppress(ProcessLookupError):
                os.kill(self.pid, signal.SIGKILL)


class _Pool:
    """Idle workers of one priority, and how many may be at work at once."""

    def __init__(self, most: int, *, is_slow: bool) -> None:
        self.free = threading.BoundedSemaphore(most)
        self.idle: list[Worker] = []
        self.is_slow = is_slow


class Workers:
    """Lends the workers of one database, fast and slow ones, to any thread.

    Raises QueryError after `close`, and DatabaseFileError when no worker can be started, which is no statement's fault.
    """

    def __init__(self, opened: Opened, *, max_reply_bytes: int) -> None:
        # The number tells this database from the same one opened again, whose names may have changed.
        self._opened = pickle.dumps((next(_numbers), opened))
        self._source = opened.engine.source
        self._max_reply_bytes = max_reply_bytes
        self._lock = threading.Lock()
        self._fast = _Pool(MAX_QUERIES, is_slow=False)
        self._slow = _Pool(_SLOW_AT_ONCE, is_slow=True)
        self._busy: set[Worker] = set()
        self._has_warned = False
        self.closed = False
        _all.add(self)
        # The first one is started now, because importing sqlglot takes longer than many a query may.
        self._fast.idle.append(self._start())

    @contextmanager
    def lent(self, due: float, *, is_slow: bool) -> Iterator[Worker]:
        """Yield a worker, which is killed when the code inside raises. Raises TimeoutError when none is free in time.

        A slow worker has a low priority.
        """
        pool = self._slow if is_slow else self._fast
        if not pool.free.acquire(timeout=max(due - time.monotonic(), 0)):
            raise TimeoutError
        try:
            worker = self._take(pool)
            try:
                yield worker
            except BaseException:
                worker.kill()
                raise
            finally:
                self._give_back(worker, pool)
        finally:
            pool.free.release()

    def close(self) -> None:
        """End all workers, those that are at work too."""
        with self._lock:
            self.closed = True
            for worker in (*self._fast.idle, *self._slow.idle):
                worker.end()
            for worker in self._busy:  # its thread reads the end of the process, and closes the pipe
                with contextlib.suppress(ProcessLookupError):
                    os.kill(worker.pid, signal.SIGKILL)

    def forget(self) -> None:
        """Leave the workers to the process that this one was forked from."""
        self._lock = threading.Lock()
        self.closed = True
        for worker in (*self._fast.idle, *self._slow.idle, *self._busy):
            worker.end()

    def _take(self, pool: _Pool) -> Worker:
        with self._lock:
            self._check_open()
            worker = pool.idle.pop() if pool.idle else None
        if worker is None:
            worker = self._start()
            if pool.is_slow:
                worker.slow_down()
        with self._lock:
            self._busy.add(worker)
        return worker

    def _give_back(self, worker: Worker, pool: _Pool) -> None:
        worker.is_new, worker.idle_since = False, time.monotonic()
        with self._lock:
            self._busy.discard(worker)
            if worker.is_alive and not self.closed:
                pool.idle.append(worker)
            elif worker.is_alive:
                worker.end()
            while pool.idle[1:] and pool.idle[0].idle_since < worker.idle_since - _KEPT_IDLE_S:
                pool.idle.pop(0).end()

    def _start(self) -> Worker:
        try:
            return self._forked()
        except (OSError, EOFError):  # the server was killed
            try:
                return self._forked()
            except (OSError, EOFError) as error:
                message = f"no process can be started to query {self._source}: {error!r}"
                raise DatabaseFileError(message, hint="see what it wrote to the terminal") from error

    def _forked(self) -> Worker:
        worker = Worker(_server.fork(self._opened), max_reply_bytes=self._max_reply_bytes)
        try:
            hello = worker.receive(time.monotonic() + _START_S)
        except BaseException:
            worker.end()
            _server.end()
            raise
        worker.pid = hello["pid"]
        if hello["trouble"] and not self._has_warned:
            self._has_warned = True
            logger.warning("hints will name no rows, because the names could not be read: %s", hello["trouble"])
        return worker

    def _check_open(self) -> None:
        if self.closed:
            raise QueryError(DATABASE_CHANGED, f"the database {self._source} is closed", hint="open it again")


_numbers = iter(range(2**62))
_server = ForkServer()
_all: weakref.WeakSet[Workers] = weakref.WeakSet()


def _forget_after_fork() -> None:
    """Close a forked child's copies of our pipes, because workers end when all copies are closed."""
    _server.forget()
    for workers in list(_all):
        workers.forget()


atexit.register(_server.end)
os.register_at_fork(after_in_child=_forget_after_fork)
