"""Query a database in worker processes of our own: a statement's process is killed when its time is up."""

from __future__ import annotations

import logging
import threading
import time
import weakref
from collections.abc import Callable, Sequence

from sql_agent.database.database import Database
from sql_agent.database.engine import DATABASE_CHANGED, UNAVAILABLE, Opened
from sql_agent.database.lexical import check_length
from sql_agent.database.provenance import CellRef
from sql_agent.database.reply import read_hint, read_reply
from sql_agent.database.truncation import MAX_REFUSAL_CHARS, refusal
from sql_agent.database.workers import Worker, Workers
from sql_agent.errors import DatabaseFileError, QueryError
from sql_agent.schemas import QueryAnswer
from sql_agent.system.outage import OUTAGE_S, Outage
from sql_agent.system.processes import cpu_seconds

logger = logging.getLogger(__name__)

# A character takes up to 12 bytes in the JSON of a reply; what is beside the cells is far below the rest.
_BYTES_PER_CHAR = 12
_BYTES_BESIDE = 64 * 1024

_PAUSE_S = 1.0  # between two tries of a statement while the database does not answer
_LONG_S = 0.02  # of processor time, after which a query is no quick one; most take a tenth of it


class LocalDatabase(Database):
    """Queries an opened file or server.

    Raises DatabaseFileError when no process can be started; the first one takes about half a second. Once a file is
    another one than was opened, every statement is refused with the kind "database_changed". While the database does
    not answer, for OUTAGE_S seconds, a statement is tried again, which is logged.
    """

    def __init__(self, opened: Opened) -> None:
        super().__init__(opened.engine.source, opened.schema, opened.engine.dialect, opened.limits)
        max_bytes = _BYTES_PER_CHAR * (self.limits.max_chars + MAX_REFUSAL_CHARS) + _BYTES_BESIDE
        self._engine = opened.engine
        self._workers = Workers(opened, max_reply_bytes=max_bytes)
        self._outage = Outage(f"The database {self.source}", logger.warning)
        self._closed = threading.Event()
        weakref.finalize(self, self._workers.close)  # for who forgets to close it

    def query(self, sql: str, *, emptied: Sequence[CellRef] = ()) -> QueryAnswer:
        """Run one statement."""
        request = {"sql": sql, "emptied": [(cell.table, cell.row_id, cell.column) for cell in emptied]}
        try:
            check_length(sql)
            return self._patient_answer(request)
        except QueryError as error:
            return refusal(error.kind, error.message, error.hint)

    def close(self) -> None:
        """End the processes of this database; a statement that is running is answered with an error."""
        self._closed.set()
        self._workers.close()
        super().close()

    def _patient_answer(self, request: object) -> QueryAnswer:
        """Return the answer of a worker; raises DatabaseFileError when the database does not answer for too long."""
        due = time.monotonic() + OUTAGE_S
        while True:
            answer = self._asked(request)
            error = answer.error
            if error is None or error.kind != UNAVAILABLE:
                self._outage.end()
                return answer
            self._outage.begin(f"does not answer; it is asked for {OUTAGE_S:.0f} s: {error.message}")
            if time.monotonic() >= due or self._closed.wait(_PAUSE_S):
                raise DatabaseFileError(f"{self.source} does not answer: {error.message}", hint=error.hint)

    def _asked(self, request: object) -> QueryAnswer:
        while True:
            with self._workers.lent() as worker:
                if (answer := self._answer(worker, request)) is not None:
                    return answer

    def _answer(self, worker: Worker, request: object) -> QueryAnswer | None:
        """Return the worker's answer; None when it had ended before it got the request."""
        due = time.monotonic() + self.limits.deadline_s
        try:
            worker.channel.send(request, due)
            answer, last, more = read_reply(self._reply(worker, due))
        except ConnectionError:  # only of `send`
            self._workers.discard(worker)
            return None
        except TimeoutError:
            return self._ended(worker, self._too_slow)
        except EOFError:
            return self._ended(worker, self._killed)
        except ValueError as error:
            logger.warning("a worker sent what is no answer: %s", error)
            return self._ended(worker, lambda: QueryError("failed", "the statement gave no answer that can be read"))
        if more:
            answer = answer.model_copy(update={"hint": self._hint(worker, due)})
        if last:
            self._workers.discard(worker)
        return answer

    def _reply(self, worker: Worker, due: float) -> object:
        """Return the worker's reply; raises as `Channel.receive` does."""
        # The time that passes would not do: on a busy machine quick queries, too, wait for a processor.
        used, wait = cpu_seconds(worker.pid), _LONG_S
        while cpu_seconds(worker.pid) < used + _LONG_S:
            try:
                return worker.channel.receive(min(due, time.monotonic() + wait))
            except TimeoutError:
                if time.monotonic() >= due:
                    raise
                wait *= 2
        with self._workers.late(worker):
            return worker.channel.receive(due)

    def _hint(self, worker: Worker, due: float) -> str | None:
        """Return the hint that follows an answer; None when it does not come, because the answer itself is right."""
        try:
            hint, trouble = read_hint(worker.channel.receive(due))
        except (TimeoutError, EOFError, ValueError) as error:
            hint, trouble = None, repr(error)
            self._workers.discard(worker)
        if trouble:
            logger.warning("no hint for a statement: %s", trouble)
        return hint

    def _ended(self, worker: Worker, why: Callable[[], QueryError]) -> QueryAnswer:
        self._workers.discard(worker)
        error = why()
        return refusal(error.kind, error.message, error.hint)

    def _too_slow(self) -> QueryError:
        # A server ends a statement before it is late; one that did not may be unable to answer anything.
        if why := self._engine.silence():
            return QueryError(UNAVAILABLE, why, hint="look whether the database server runs")
        message = f"interrupted after {self.limits.deadline_s:g} seconds"
        return QueryError("timeout", message, hint="read fewer rows: add WHERE and LIMIT, join fewer tables")

    def _killed(self) -> QueryError:
        if self._workers.closed:
            return QueryError(DATABASE_CHANGED, f"the database {self.source} is closed", hint="open it again")
        message = "the statement needed more memory or time than a query may have"
        return QueryError("too_complex", message, hint="write a simpler statement, read fewer rows")
