"""Query a database in the worker processes of `worker.py`: start, reuse and kill workers, and retry in an outage."""

from __future__ import annotations

import atexit
import contextlib
import json
import logging
import multiprocessing
import os
import pickle
import signal
import subprocess
import sys
import threading
import time
import weakref
from collections.abc import Sequence
from dataclasses import replace
from multiprocessing.connection import Connection as Pipe
from multiprocessing.reduction import send_handle
from pathlib import Path
from typing import Any

from sql_agent.database.answers import DATABASE_CHANGED, UNAVAILABLE, refusal
from sql_agent.database.counterfactual import Change
from sql_agent.database.database import MAX_QUERIES, Database
from sql_agent.database.guard import check_length
from sql_agent.database.named_values import NamedValue
from sql_agent.database.schema import RequiredSchema
from sql_agent.database.source import Opened, Source, open_source
from sql_agent.errors import DatabaseFileError, QueryError
from sql_agent.schemas import QueryAnswer, QueryLimits
from sql_agent.system.messages import OUTAGE_S, Outage

logger = logging.getLogger(__name__)

_START_S = 60.0  # time limit for the start of a worker, including the import of sqlglot on a busy machine
_SERVER = "import sys; sys.path[:] = {path!r}; from sql_agent.database.worker import serve; serve()"
_GRACE_S = 0.2  # a worker that has not answered this long after the deadline is killed
_LOOK_UP_S = 30.0  # time limit of a look-up in memory, which takes milliseconds on a machine with a free core
_LOOK_UPS_KEPT = 2_000
_KEPT_IDLE_S = 10.0  # an idle worker is stopped after this time; starting a worker takes about 10 ms of CPU time
_PAUSE_S = 1.0  # pause between two attempts while the database does not answer
_SEE_TRACEBACK = "read the worker process's traceback in the terminal"


def open_database(
    source: str | Source, required: RequiredSchema, limits: QueryLimits | None = None, *, hinted: bool = True
) -> Database:
    """Open the database at `source`, a path or a URL.

    Hints take longer than most statements; with `hinted=False` answers have no hints. Raises DatabaseFileError if the
    database does not exist or lacks a required table, column or row.
    """
    opened = open_source(source, required, limits or QueryLimits())
    return LocalDatabase(replace(opened, hinted=hinted))


class LocalDatabase(Database):
    """A SQLite file or a database server, queried in worker processes.

    The deadline of a statement starts when a worker receives the statement. Once a SQLite file has changed, every
    statement is refused with the kind "database_changed". While the database does not answer, a statement is retried
    for OUTAGE_S seconds, and the outage is logged. Raises DatabaseFileError if no worker can be started; the start of
    the first worker takes about half a second.
    """

    def __init__(self, opened: Opened) -> None:
        super().__init__(opened.engine.source, opened.schema, opened.engine.dialect, opened.limits)
        self._engine = opened.engine
        # The process that forks workers caches indexes, keyed by these bytes. They contain the state of a file; a
        # database server may have changed in an unknown way, so they contain the time instead.
        self._opened = pickle.dumps((0 if isinstance(self.source, Path) else time.monotonic_ns(), opened))
        self._named: dict[str, list[NamedValue]] = {}  # the rollouts of a group ask the same
        self._outage = Outage(f"The database {self.source}", logger.warning)
        self._pid = os.getpid()
        self._closed = threading.Event()
        self._free = threading.BoundedSemaphore(MAX_QUERIES)
        self._lock = threading.Lock()
        self._busy: set[Worker] = set()
        # The first worker is started now, because importing sqlglot can take longer than the deadline of a query.
        self._idle = [Worker(self._opened)]
        if trouble := self._idle[0].trouble:
            logger.warning("hints will suggest no names of rows, because these could not be read: %s", trouble)

    def query(self, sql: str, *, changes: Sequence[Change] = ()) -> QueryAnswer:
        request = {"sql": sql, "changes": [change.model_dump() for change in changes]}
        try:
            check_length(sql)
            return self._patient_answer(request)
        except QueryError as error:
            return refusal(error.kind, error.message, error.hint)

    def named_values(self, text: str) -> list[NamedValue]:
        if (known := self._named.get(text)) is not None:  # not `in`: another thread may clear
            return known
        try:
            found = self._reply({"text": text}, _LOOK_UP_S)["values"]
        except (TimeoutError, EOFError, QueryError) as error:
            message = f"the values of {self.source} cannot be looked up: {str(error) or type(error).__name__}"
            raise DatabaseFileError(message, hint=_SEE_TRACEBACK) from error
        if len(self._named) >= _LOOK_UPS_KEPT:
            self._named.clear()
        values = self._named[text] = list(map(NamedValue.model_validate, found))
        return values

    def close(self) -> None:
        with self._lock:
            self._closed.set()
            for worker in self._idle:
                worker.close()
            for worker in self._busy:
                worker.kill()
        super().close()

    def _patient_answer(self, request: dict[str, Any]) -> QueryAnswer:
        """Return a worker's answer, retrying during an outage. Raises DatabaseFileError after OUTAGE_S seconds."""
        give_up_at = time.monotonic() + OUTAGE_S
        while True:
            with self._free:
                answer = self._answer(request)
            error = answer.error
            if error is None or error.kind != UNAVAILABLE:
                self._outage.end()
                return answer
            self._outage.begin(f"does not answer; queries are retried for {OUTAGE_S:.0f} s: {error.message}")
            if time.monotonic() >= give_up_at or self._closed.wait(_PAUSE_S):
                raise DatabaseFileError(f"{self.source} does not answer: {error.message}", hint=error.hint)

    def _answer(self, request: dict[str, Any]) -> QueryAnswer:
        """Return a worker's answer. Raises QueryError if the database is closed."""
        try:
            reply = self._reply(request, self.limits.deadline_s + _GRACE_S)
        except TimeoutError:
            # A healthy server ends a statement before the deadline, so this server may be down.
            if why := self._engine.silence():
                return refusal(UNAVAILABLE, why, "check that the database server runs")
            message = f"interrupted after {self.limits.deadline_s:g} seconds"
            return refusal("timeout", message, "read fewer rows: add WHERE and LIMIT, join fewer tables")
        except EOFError:
            self._check_open()
            message = "the statement needed more memory or time than a query may have"
            return refusal("too_complex", message, "write a simpler statement, read fewer rows")
        return QueryAnswer.model_validate(reply["answer"])

    def _reply(self, request: dict[str, Any], seconds: float) -> Any:
        """Return a worker's reply. Raises TimeoutError after `seconds`, and EOFError if the worker process ends."""
        worker = self._handed_over(request)
        is_fit = False
        try:
            reply = worker.receive(seconds)
            is_fit = not reply["last"]
        except EOFError:
            raise
        except BaseException:  # such as TimeoutError and KeyboardInterrupt
            worker.kill()
            raise
        finally:
            self._take_back(worker, is_fit=is_fit)
        return reply

    def _handed_over(self, request: dict[str, Any]) -> Worker:
        """Send the request to an idle worker, else to a new worker, and return the worker."""
        while True:
            with self._lock:
                self._check_open()
                worker = self._idle.pop() if self._idle else None
            worker = worker or Worker(self._opened)
            with self._lock:
                self._busy.add(worker)
            try:
                worker.send({**request, "due": time.monotonic() + self.limits.deadline_s})
            except OSError:
                self._take_back(worker, is_fit=False)
            else:
                return worker

    def _take_back(self, worker: Worker, *, is_fit: bool) -> None:
        """Keep the worker if `is_fit`, else close it. Also close the workers that have been idle for over 10 s."""
        worker.idle_since = time.monotonic()
        with self._lock:
            self._busy.discard(worker)
            if is_fit and not self._closed.is_set():
                self._idle.append(worker)
            else:
                worker.close()
            while self._idle[1:] and self._idle[0].idle_since < worker.idle_since - _KEPT_IDLE_S:
                self._idle.pop(0).close()

    def _check_open(self) -> None:
        if self._closed.is_set() or os.getpid() != self._pid:  # a forked child must not use its parent's workers
            raise QueryError(DATABASE_CHANGED, f"the database {self.source} is closed", hint="open it again")


class Worker:
    """A worker process, which answers one statement at a time on the pickled database `opened`.

    Raises DatabaseFileError if the process does not start.
    """

    def __init__(self, opened: bytes) -> None:
        self._pipe, theirs = multiprocessing.Pipe()
        _pipes.add(self._pipe)
        try:
            with theirs:
                _server.fork(opened, theirs)
            started = self.receive(_START_S)
        except (OSError, EOFError) as error:
            self._pipe.close()
            message = f"the worker process for the database cannot be started: {error!r}"
            raise DatabaseFileError(message, hint=_SEE_TRACEBACK) from error
        self._pid: int = started["pid"]
        self.trouble: str | None = started["trouble"]
        self.idle_since = 0.0

    def send(self, request: object) -> None:
        """Send a request, which JSON can express. Raises OSError if the process has ended."""
        self._pipe.send_bytes(json.dumps(request).encode("ascii"))

    def receive(self, seconds: float) -> Any:
        """Return the next message. Raises TimeoutError if none comes in `seconds`, EOFError if the process has ended.

        The message is JSON, because unpickling data from a process that runs untrusted statements is not safe.
        """
        if not self._pipe.poll(max(seconds, 0)):
            raise TimeoutError
        try:
            return json.loads(self._pipe.recv_bytes())
        except OSError as error:
            raise EOFError from error

    def kill(self) -> None:
        """Kill the process. A thread that waits in `receive` gets EOFError."""
        with contextlib.suppress(ProcessLookupError):
            os.kill(self._pid, signal.SIGKILL)

    def close(self) -> None:
        """Close the pipe, so that the process ends once it is idle."""
        self._pipe.close()


class _Server:
    """The server process that forks workers; it is started on first use, and again if it was killed."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._process: subprocess.Popen[bytes] | None = None
        self._orders: Pipe | None = None

    def fork(self, opened: bytes, pipe: Pipe) -> None:
        """Start a worker for the pickled database `opened`, which talks through `pipe`. Raises OSError."""
        with self._lock:
            if self._process is None or self._orders is None or self._process.poll() is not None:
                self._orders, theirs = multiprocessing.Pipe()
                with theirs:
                    self._process = subprocess.Popen(  # noqa: S603
                        [sys.executable, "-c", _SERVER.format(path=sys.path)],
                        stdin=theirs.fileno(),
                        stdout=subprocess.DEVNULL,
                        # numpy must start no threads: the server forks
                        env=os.environ | {"OPENBLAS_NUM_THREADS": "1"},
                        process_group=0,  # Ctrl-C must reach only the program, which ends the server itself
                    )
                _pipes.add(self._orders)
            self._orders.send_bytes(opened)
            send_handle(self._orders, pipe.fileno(), self._process.pid)

    def end(self) -> None:
        """Kill the server; its workers die with it."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()

    def forget(self) -> None:
        """Drop the server in a forked child process, because the server belongs to the parent process."""
        if self._process is not None:
            self._process.returncode = 0  # no wait(): the server is not a child of this process
        self.__init__()  # type: ignore[misc]


# A worker ends when all copies of the program's end of its pipe are closed.
_pipes: weakref.WeakSet[Pipe] = weakref.WeakSet()
_server = _Server()


def _forget_after_fork() -> None:
    for pipe in list(_pipes):
        pipe.close()
    _server.forget()


atexit.register(_server.end)
os.register_at_fork(after_in_child=_forget_after_fork)
