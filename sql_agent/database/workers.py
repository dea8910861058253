"""Keep the workers of a database: start them when they are needed, kill those that are late, end them all."""

from __future__ import annotations

import atexit
import contextlib
import logging
import os
import pickle
import socket
import threading
import time
import weakref
from collections.abc import Iterator
from contextlib import contextmanager

from sql_agent.database.channel import ORDER, Channel
from sql_agent.database.engine import DATABASE_CHANGED, Opened
from sql_agent.database.fork_client import ForkServer
from sql_agent.errors import DatabaseFileError, QueryError

logger = logging.getLogger(__name__)

MAX_WORKERS = 64  # queries of one database at once, twice what a runner asks; more wait
_KEPT_IDLE = 8
_SPARE = 2  # started ahead, because a query would wait for the start, which a busy machine makes long
_SLOWED_BY = 10  # steps of niceness
_LEAST_PRIORITY = 19
_START_S = 60.0  # that a worker may take to start, which on a busy machine includes importing sqlglot


class Worker:
    """Represents a process that answers one statement at a time.

    `number` is what its template calls it, 0 when it is gone.
    """

    def __init__(self, number: int, channel: Channel) -> None:
        self.number = number
        self.channel = channel
        self.pid = 0
        self.is_slowed = False


class Workers:
    """Lends the workers of one database. `lent` may be called from any thread.

    It raises QueryError after `close`, and DatabaseFileError when no worker can be started, which is no statement's
    fault.
    """

    def __init__(self, opened: Opened, *, max_reply_bytes: int) -> None:
        self._opened = pickle.dumps(opened)
        self._source = opened.engine.source
        self._max_reply_bytes = max_reply_bytes
        self._lock = threading.Lock()
        self._free = threading.BoundedSemaphore(MAX_WORKERS)
        self._idle: list[Worker] = []
        self._template: socket.socket | None = None
        self._started = 0
        self._late = 0
        self._told = False
        self._refilling = False
        self.closed = False
        _all.add(self)
        # The first one is started now, because importing sqlglot takes longer than many a query may.
        self._give_back(self._start())

    @contextmanager
    def lent(self) -> Iterator[Worker]:
        """Yield a worker that nobody else uses. It comes back unless it is discarded meanwhile."""
        with self._free:
            worker = self._take() or self._start()
            self._keep_spare()
            try:
                yield worker
            except BaseException:
                self.discard(worker)
                raise
            self._give_back(worker)

    @contextmanager
    def late(self, worker: Worker) -> Iterator[None]:
        """Count a query that runs long; when more of them run than there are cores, quick ones go before it."""
        with self._lock:
            self._late += 1
            if self._late > (os.cpu_count() or 1):
                worker.is_slowed = True
        if worker.is_slowed:
            with contextlib.suppress(ProcessLookupError):  # it has just ended
                slowed = os.getpriority(os.PRIO_PROCESS, worker.pid) + _SLOWED_BY
                os.setpriority(os.PRIO_PROCESS, worker.pid, min(slowed, _LEAST_PRIORITY))
        try:
            yield
        finally:
            with self._lock:
                self._late -= 1

    def discard(self, worker: Worker) -> None:
        """Kill a worker that is late, did not answer as it should, or has ended."""
        worker.channel.close()
        with self._lock, contextlib.suppress(OSError):  # the template has ended, and its workers with it
            number, worker.number = worker.number, 0
            if number and self._template is not None:
                self._template.sendall(ORDER.pack(-number))

    def close(self) -> None:
        """End all workers, those that are at work too."""
        with self._lock:
            self.closed = True
            self._end_template(self._template)
            while self._idle:
                self._idle.pop().channel.close()

    def forget(self) -> None:
        """Leave the workers to the process that this one was forked from."""
        self._lock = threading.Lock()
        self.closed = True
        self._refilling = False
        if self._template is not None:
            self._template.close()
            self._template = None
        while self._idle:
            self._idle.pop().channel.close()

    def _take(self) -> Worker | None:
        with self._lock:
            self._check_open()
            return self._idle.pop() if self._idle else None

    def _keep_spare(self) -> None:
        with self._lock:
            if self._refilling or self.closed or len(self._idle) >= _SPARE:
                return
            self._refilling = True
        threading.Thread(target=self._refill, name="spare workers", daemon=True).start()

    def _refill(self) -> None:
        """Start spare workers; what keeps one from starting is the matter of the query that needs one."""
        try:
            while not self.closed and len(self._idle) < _SPARE:
                self._give_back(self._start())
        except (QueryError, DatabaseFileError) as error:
            logger.debug("no spare worker: %s", error)
        finally:
            self._refilling = False

    def _give_back(self, worker: Worker) -> None:
        with self._lock:
            # A process cannot take its priority back.
            if worker.number and not worker.is_slowed and not self.closed and len(self._idle) < _KEPT_IDLE:
                self._idle.append(worker)
            else:
                worker.channel.close()  # which ends the process

    def _start(self) -> Worker:
        try:
            return self._started_by(self._current_template())
        except (OSError, EOFError):  # the template was killed: with a new one, then
            try:
                return self._started_by(self._current_template())
            except (OSError, EOFError) as error:
                message = f"no process can be started to query {self._source}: {error!r}"
                raise DatabaseFileError(message, hint="see what it wrote to the terminal") from error

    def _current_template(self) -> socket.socket:
        with self._lock:
            self._check_open()
            if self._template is None:
                self._template = _server.new_template(self._opened)
            return self._template

    def _started_by(self, template: socket.socket) -> Worker:
        ours, theirs = socket.socketpair()
        channel = Channel(ours, max_bytes=self._max_reply_bytes)
        try:
            with theirs, self._lock:
                self._started += 1
                worker = Worker(self._started, channel)
                socket.send_fds(template, [ORDER.pack(worker.number)], [theirs.fileno()])
            hello = channel.receive(time.monotonic() + _START_S)
            worker.pid = hello["pid"]
            self._tell(hello["trouble"])
        except BaseException:
            channel.close()
            with self._lock:
                self._end_template(template)
            raise
        return worker

    def _check_open(self) -> None:
        if self.closed:
            raise QueryError(DATABASE_CHANGED, f"the database {self._source} is closed", hint="open it again")

    def _tell(self, trouble: str | None) -> None:
        if trouble and not self._told:
            self._told = True
            logger.warning("hints will name no rows, because the names could not be read: %s", trouble)

    def _end_template(self, template: socket.socket | None) -> None:
        """End `template` if it is still the one in use; the lock is held."""
        if template is not None and template is self._template:
            self._template = None
            template.close()


_server = ForkServer()
_all: weakref.WeakSet[Workers] = weakref.WeakSet()


def _forget_after_fork() -> None:
    """Close a forked child's copies of our sockets, because workers end when all copies are closed."""
    _server.forget()
    for workers in list(_all):
        workers.forget()


atexit.register(_server.end)
os.register_at_fork(after_in_child=_forget_after_fork)
