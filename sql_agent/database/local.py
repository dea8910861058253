"""Query a database in worker processes, of which one that is late is killed."""

from __future__ import annotations

import logging
import threading
import time
import weakref
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from sql_agent.database.answers import DATABASE_CHANGED, MAX_REFUSAL_CHARS, UNAVAILABLE, refusal
from sql_agent.database.counterfactual import Change
from sql_agent.database.database import Database
from sql_agent.database.guard import check_length
from sql_agent.database.schema import RequiredSchema
from sql_agent.database.source import Opened, Source, open_source
from sql_agent.database.workers import Workers
from sql_agent.errors import DatabaseFileError, QueryError
from sql_agent.schemas import QueryAnswer, QueryLimits
from sql_agent.system.messages import OUTAGE_S, Outage

logger = logging.getLogger(__name__)

# A character takes up to 12 bytes in the JSON of a reply; what is beside the cells is far below the rest.
_BYTES_PER_CHAR = 12
_BYTES_BESIDE = 64 * 1024

_PAUSE_S = 1.0  # between two tries of a statement while the database does not answer


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
        weakref.finalize(self, self._workers.close)  # for callers that forget to close it

    def query(self, sql: str, *, changes: Sequence[Change] = ()) -> QueryAnswer:
        """Run one statement; its deadline counts from this call."""
        request = {"sql": sql, "changes": [change.model_dump() for change in changes]}
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

    def _patient_answer(self, request: dict[str, Any]) -> QueryAnswer:
        """Return the answer of a worker; raises DatabaseFileError when the database does not answer for too long."""
        give_up_at = time.monotonic() + OUTAGE_S
        while True:
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
        due = time.monotonic() + self.limits.deadline_s
        while True:
            try:
                with self._workers.lent(due) as worker:
                    if worker.is_new:  # the statement is not to blame for the time that its start took
                        due = time.monotonic() + self.limits.deadline_s
                    reply = worker.ask({**request, "due": due}, due)
                    if reply["trouble"]:
                        logger.warning("no hint for a statement: %s", reply["trouble"])
                    if reply["last"]:
                        worker.end()
                    return QueryAnswer.model_validate(reply["answer"])
            except ConnectionError:  # it had ended before it got the request
                continue
            except TimeoutError:
                return self._too_slow()
            except EOFError:
                return self._killed()
            except QueryError:  # the database is closed
                raise
            except (ValueError, KeyError, TypeError) as error:
                logger.warning("a worker's reply cannot be read: %s", error)
                return refusal("failed", "the statement gave no answer that can be read", "write it in another way")

    def _too_slow(self) -> QueryAnswer:
        # A server ends a statement before it is late; one that did not may be unable to answer anything.
        if why := self._engine.silence():
            return refusal(UNAVAILABLE, why, "look whether the database server runs")
        message = f"interrupted after {self.limits.deadline_s:g} seconds"
        return refusal("timeout", message, "read fewer rows: add WHERE and LIMIT, join fewer tables")

    def _killed(self) -> QueryAnswer:
        if self._workers.closed:
            return refusal(DATABASE_CHANGED, f"the database {self.source} is closed", "open it again")
        message = "the statement needed more memory or time than a query may have"
        return refusal("too_complex", message, "write a simpler statement, read fewer rows")
