"""Query a database in worker processes: keep the idle ones, replace those that were killed, wait out an outage."""

from __future__ import annotations

import itertools
import logging
import os
import pickle
import threading
import time
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from sql_agent.database.answers import DATABASE_CHANGED, UNAVAILABLE, refusal
from sql_agent.database.counterfactual import Change
from sql_agent.database.database import MAX_QUERIES, Database
from sql_agent.database.guard import check_length
from sql_agent.database.schema import RequiredSchema
from sql_agent.database.source import Opened, Source, open_source
from sql_agent.database.workers import Worker
from sql_agent.errors import DatabaseFileError, QueryError
from sql_agent.schemas import QueryAnswer, QueryLimits
from sql_agent.system.messages import OUTAGE_S, Outage

logger = logging.getLogger(__name__)

_GRACE_S = 0.2  # after the deadline, in which a worker should have answered by itself
_KEPT_IDLE_S = 10.0  # for which a worker is kept that nobody needs; to start one takes some 10 ms of a processor
_PAUSE_S = 1.0  # between two tries of a statement while the database does not answer
_numbers = itertools.count()


def open_database(
    source: str | Source, required: RequiredSchema, limits: QueryLimits | None = None, *, hinted: bool = True
) -> Database:
    """Open the database at `source`, a path or a URL.

    Without `hinted` its answers have no hints, which take longer than most statements. Raises DatabaseFileError when it
    is not there or lacks something of `required`.
    """
    opened = open_source(source, required, limits or QueryLimits())
    return LocalDatabase(replace(opened, hinted=hinted))


class LocalDatabase(Database):
    """Queries an opened file or server; the deadline of a statement begins when a worker receives the statement.

    Raises DatabaseFileError when no worker can be started; the first one takes about half a second. Once a file is
    another one than was opened, every statement is refused with the kind "database_changed". While the database does
    not answer, for OUTAGE_S seconds, a statement is tried again, which is logged.
    """

    def __init__(self, opened: Opened) -> None:
        super().__init__(opened.engine.source, opened.schema, opened.engine.dialect, opened.limits)
        self._engine = opened.engine
        # The number tells this database from the same one opened again, whose names may have changed.
        self._opened = pickle.dumps((next(_numbers), opened))
        self._outage = Outage(f"The database {self.source}", logger.warning)
        self._pid = os.getpid()
        self._closed = threading.Event()
        self._free = threading.BoundedSemaphore(MAX_QUERIES)
        self._lock = threading.Lock()
        self._busy: set[Worker] = set()
        # The first worker is started now, because importing sqlglot takes longer than many a query may.
        self._idle = [Worker(self._opened)]
        if trouble := self._idle[0].trouble:
            logger.warning("hints will name no rows, because the names could not be read: %s", trouble)

    def query(self, sql: str, *, changes: Sequence[Change] = ()) -> QueryAnswer:
        """Run one statement."""
        request = {"sql": sql, "changes": [change.model_dump() for change in changes]}
        try:
            check_length(sql)
            return self._patient_answer(request)
        except QueryError as error:
            return refusal(error.kind, error.message, error.hint)

    def close(self) -> None:
        """End the processes of this database; a statement that is running is answered with an error."""
        with self._lock:
            self._closed.set()
            for worker in self._idle:
                worker.close()
            for worker in self._busy:
                worker.kill()
        super().close()

    def _patient_answer(self, request: dict[str, Any]) -> QueryAnswer:
        """Return the answer of a worker; raises DatabaseFileError when the database does not answer for too long."""
        give_up_at = time.monotonic() + OUTAGE_S
        while True:
            with self._free:
                answer = self._answer(request)
            error = answer.error
            if error is None or error.kind != UNAVAILABLE:
                self._outage.end()
                return answer
            self._outage.begin(f"does not answer; it is asked for {OUTAGE_S:.0f} s: {error.message}")
            if time.monotonic() >= give_up_at or self._closed.wait(_PAUSE_S):
                raise DatabaseFileError(f"{self.source} does not answer: {error.message}", hint=error.hint)

    def _answer(self, request: dict[str, Any]) -> QueryAnswer:
        """Return the answer of a worker. Raises QueryError when the database is closed."""
        worker = self._handed_over(request)
        is_fit = False
        try:
            reply = worker.receive(self.limits.deadline_s + _GRACE_S)
            is_fit = not reply["last"]
        except TimeoutError:
            worker.kill()
            return self._too_slow()
        except EOFError:
            self._check_open()
            message = "the statement needed more memory or time than a query may have"
            return refusal("too_complex", message, "write a simpler statement, read fewer rows")
        except BaseException:  # an interrupt
            worker.kill()
            raise
        finally:
            self._take_back(worker, is_fit=is_fit)
        if reply["trouble"]:
            logger.warning("no hint for a statement: %s", reply["trouble"])
        return QueryAnswer.model_validate(reply["answer"])

    def _handed_over(self, request: dict[str, Any]) -> Worker:
        """Return the worker that has received the request: an idle one, unless all were killed, or a new one."""
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
        """Keep a worker that is fit for further statements, and end those that have been idle for long."""
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

    def _too_slow(self) -> QueryAnswer:
        # A server ends a statement before it is late; one that did not may be unable to answer anything.
        if why := self._engine.silence():
            return refusal(UNAVAILABLE, why, "look whether the database server runs")
        message = f"interrupted after {self.limits.deadline_s:g} seconds"
        return refusal("timeout", message, "read fewer rows: add WHERE and LIMIT, join fewer tables")
