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

    def end(self) -> None:
        """End the process, which is idle."""
        self.is_alive = False
        self._pipe.close()

    def kill(self) -> None:
        """End the process, whatever it does; its pipe stays open for the thread that reads it."""
        with contextlib.suppress(ProcessLookupError):
            os.kill(self.pid, signal.SIGKILL)


class Workers:
    """Lends the workers of one database to any thread.

    Raises QueryError after `close`, and DatabaseFileError when no worker can be started, which is no statement's fault.
    """

    def __init__(self, opened: Opened, *, max_reply_bytes: int) -> None:
        # The number tells this database from the same one opened again, whose names may have changed.
        self._opened = pickle.dumps((next(_numbers), opened))
        self._source = opened.engine.source
        self._max_reply_bytes = max_reply_bytes
        self._lock = threading.Lock()
        self._free = threading.BoundedSemaphore(MAX_QUERIES)
        self._idle: list[Worker] = []
        self._busy: set[Worker] = set()
        self._has_warned = False
        self.closed = False
        _all.add(self)
        # The first one is started now, because importing sqlglot takes longer than many a query may.
        self._idle.append(self._start())

    @contextmanager
    def lent(self, due: float) -> Iterator[Worker]:
        """Yield a worker, killed when the code inside raises. Raises TimeoutError when none is free in time."""
        if not self._free.acquire(timeout=max(due - time.monotonic(), 0)):
            raise TimeoutError
        try:
            worker = self._take()
            try:
                yield worker
            except BaseException:
                if worker.is_alive:
                    worker.kill()
                    worker.end()
                raise
            finally:
                self._give_back(worker)
        finally:
            self._free.release()

    def close(self) -> None:
        """End all workers, those that are at work too."""
        with self._lock:
            self.closed = True
            for worker in self._idle:
                worker.end()
            for worker in self._busy:
                worker.kill()

    def forget(self) -> None:
        """Leave the workers to the process that this one was forked from."""
        self._lock = threading.Lock()
        self.closed = True
        for worker in (*self._idle, *self._busy):
            worker.end()

    def _take(self) -> Worker:
        with self._lock:
            if self.closed:
                raise QueryError(DATABASE_CHANGED, f"the database {self._source} is closed", hint="open it again")
            worker = self._idle.pop() if self._idle else None
        worker = worker or self._start()
        with self._lock:
            self._busy.add(worker)
        return worker

    def _give_back(self, worker: Worker) -> None:
        worker.is_new, worker.idle_since = False, time.monotonic()
        with self._lock:
            self._busy.discard(worker)
            if worker.is_alive and not self.closed:
                self._idle.append(worker)
            elif worker.is_alive:
                worker.end()
            while self._idle[1:] and self._idle[0].idle_since < worker.idle_since - _KEPT_IDLE_S:
                self._idle.pop(0).end()

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
        try:
            worker = Worker(_server.fork(self._opened), max_reply_bytes=self._max_reply_bytes)
            try:
                hello = worker.receive(time.monotonic() + _START_S)
            except BaseException:
                worker.end()
                raise
        except BaseException:
            _server.end()
            raise
        worker.pid = hello["pid"]
        if hello["trouble"] and not self._has_warned:
            self._has_warned = True
            logger.warning("hints will name no rows, because the names could not be read: %s", hello["trouble"])
        return worker


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
