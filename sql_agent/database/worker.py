"""Answer statements in a process of its own: parse, check, execute, cap the answer, write the hint.

Neither sqlglot nor SQLite's compiler and functions can be interrupted. Here they need not be: the parent kills the
process at the deadline, and the operating system holds it to its memory and time.
"""

from __future__ import annotations

import math
import resource
import sqlite3
import sys
import time
import traceback
from collections.abc import Sequence
from contextlib import closing
from dataclasses import replace
from pathlib import Path

from sql_agent.database import allowed
from sql_agent.database.channel import Channel
from sql_agent.database.failures import from_sqlite
from sql_agent.database.file_state import check_unchanged
from sql_agent.database.guard import CheckedQuery, check
from sql_agent.database.hints import Hints, is_wanted
from sql_agent.database.name_index import NameIndex
from sql_agent.database.opening import Opened, read_only_connection
from sql_agent.database.provenance import CellRef, with_cells_emptied
from sql_agent.database.schema import fold
from sql_agent.database.truncation import fit, refusal
from sql_agent.errors import QueryError
from sql_agent.schemas import QueryAnswer

MAX_MEMORY_BYTES = 512 * 1024 * 1024  # of addresses; 90 MB of them are taken by the interpreter and its modules
_MAX_FILE_BYTES = 64 * 1024  # for SQLite's index of a write-ahead log; nothing else is ever written
# A worker that needed this much more memory than at its start is replaced, because little of it would come back.
_SWOLLEN_KIB = 100 * 1024
# Each of the few statements behind a hint may take this long; on the databases seen they take a tenth of it.
_HINT_STATEMENT_S = 0.25
_PROGRESS_STEPS = 10_000  # of SQLite's machine, about 0.1 ms, between two looks at the clock
# The writer of another process may hold the file; waiting ends before the deadline, so that the answer says why.
_LOCK_SHARE = 0.75

_SQLITE_FAILURES = (sqlite3.Error, sqlite3.Warning, MemoryError, OverflowError, ValueError)


def limit_resources() -> None:
    """Hold this process to its memory; it cannot write large files, start processes or leave a core."""
    limits = {resource.RLIMIT_FSIZE: _MAX_FILE_BYTES, resource.RLIMIT_CORE: 0}
    if sys.platform.startswith("linux"):  # elsewhere these two cannot be set or count other processes
        limits |= {resource.RLIMIT_AS: MAX_MEMORY_BYTES, resource.RLIMIT_NPROC: 0}
    for which, value in limits.items():
        resource.setrlimit(which, (value, value))


def answer_requests(channel: Channel, opened: Opened, names: NameIndex) -> None:
    """Answer statements until the parent closes its end or this process has grown; then return.

    A request is `{"sql": text, "emptied": [[table, id, column], ...]}`. Its reply is `{"answer": QueryAnswer, "last":
    whether this worker ends, "more": whether a hint follows}`, and the hint `{"hint": text or null, "trouble": text}`.
    """
    session = _Session(opened, names)
    least = _peak_kib()
    while True:
        try:
            request = channel.receive()
        except EOFError:
            return
        _limit_cpu(opened.limits.deadline_s)
        answer, checked = session.answer(request["sql"], [CellRef(*cell) for cell in request["emptied"]])
        more = checked is not None and not request["emptied"] and is_wanted(answer)
        last = _peak_kib() > least + _SWOLLEN_KIB
        channel.send({"answer": answer.model_dump(), "last": last, "more": more})
        if more and checked is not None:
            channel.send(session.hint(checked.sql, answer))
        if last:
            return


def _peak_kib() -> int:
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak if sys.platform != "darwin" else peak // 1024


def _limit_cpu(deadline_s: float) -> None:
    """End this process by the kernel's hand when the parent, stopped or busy, does not do it at the deadline."""
    used = resource.getrusage(resource.RUSAGE_SELF)
    limit = math.ceil(used.ru_utime + used.ru_stime + deadline_s) + 1
    resource.setrlimit(resource.RLIMIT_CPU, (limit, resource.RLIM_INFINITY))


class _Session:
    """Holds one connection, and what every statement is checked against."""

    def __init__(self, opened: Opened, names: NameIndex) -> None:
        self._opened = opened
        self._connection: Connection | None = None
        self._hints = Hints(opened.schema, opened.names, names, self._read)

    def answer(self, sql: str, emptied: Sequence[CellRef]) -> tuple[QueryAnswer, CheckedQuery | None]:
        """Return the answer to `sql`, and the statement that ran; None when it failed."""
        try:
            checked = check(sql, self._opened.schema)
            if emptied:
                tables = frozenset(fold(cell.table) for cell in emptied)
                plain = with_cells_emptied(checked.sql, self._opened.schema, emptied)
                checked = replace(checked, sql=plain, ctes=checked.ctes | tables)
            check_unchanged(self._opened.path, self._opened.state)
            answer = self._run(checked)
            check_unchanged(self._opened.path, self._opened.state)
        except QueryError as error:
            return refusal(error.kind, error.message, error.hint), None
        except MemoryError:
            return refusal("too_complex", "out of memory", "write a shorter statement"), None
        except Exception as error:
            message = f"the statement cannot be read: {type(error).__name__}: {error}"
            return refusal("failed", message, "write it in another way"), None
        return answer, checked

    def hint(self, sql: str, answer: QueryAnswer) -> dict[str, str | None]:
        """Return the message with the hint, or with what went wrong there; the answer itself is right."""
        try:
            return {"hint": self._hints.hint(sql, answer), "trouble": None}
        except Exception:
            return {"hint": None, "trouble": traceback.format_exc()[-2000:]}

    def _run(self, checked: CheckedQuery) -> QueryAnswer:
        connection = self._connect()
        connection.ctes = checked.ctes
        try:
            with closing(connection.raw.execute(checked.sql)) as cursor:
                columns, records, truncated = fit((item[0] for item in cursor.description), cursor, self._opened.limits)
        except _SQLITE_FAILURES as error:
            raise from_sqlite(error, checked.sql, self._opened.schema) from error
        return QueryAnswer(
            status="ok",
            columns=columns,
            records=records,
            count=len(records),
            truncated=truncated,
            from_tables=checked.from_tables,
        )

    def _read(self, sql: str) -> list[tuple[object, ...]]:
        """Return all rows of a statement of our own. Raises QueryError when it fails or is too slow."""
        connection = self._connect().raw
        due = time.monotonic() + _HINT_STATEMENT_S
        connection.set_progress_handler(lambda: time.monotonic() > due, _PROGRESS_STEPS)
        try:
            return connection.execute(sql).fetchall()
        except _SQLITE_FAILURES as error:
            raise from_sqlite(error, sql, self._opened.schema) from error
        finally:
            connection.set_progress_handler(None, 0)

    def _connect(self) -> Connection:
        if self._connection is None:
            opened = self._opened
            try:
                self._connection = Connection(
                    opened.path, frozenset(opened.schema.columns), lock_wait_s=opened.limits.deadline_s * _LOCK_SHARE
                )
            except sqlite3.Error as error:
                raise QueryError("failed", f"the database {opened.path} cannot be opened: {error}") from error
        return self._connection


class Connection:
    """Asks, while SQLite compiles a statement, whether each part of it is allowed; the connection is read-only.

    `tables` are the names, in lower case, of those that may be read, `ctes` those of the WITH queries of the statement
    that comes next.
    """

    def __init__(self, path: Path, tables: frozenset[str], *, lock_wait_s: float = 5.0) -> None:
        self.raw = read_only_connection(path, lock_wait_s=lock_wait_s)
        self._tables = tables
        self.ctes: frozenset[str] = frozenset()
        self.raw.set_authorizer(self._authorize)

    def _authorize(
        self, action: int, first: str | None, second: str | None, database: str | None, _inner: str | None
    ) -> int:
        """SQLite's own view of the statement, so that a misreading by the guard cannot open another table."""
        permitted = action == sqlite3.SQLITE_SELECT
        if action == sqlite3.SQLITE_READ:
            table = fold(first or "")
            # A table of which no column is used is reported without its database; WITH queries likewise.
            unused_cte = table in self.ctes and not second and database is None
            permitted = unused_cte or (table in self._tables and database in {"main", None})
        elif action == sqlite3.SQLITE_FUNCTION:
            permitted = fold(second or "") in allowed.FUNCTIONS | allowed.IMPLICIT_FUNCTIONS
        return sqlite3.SQLITE_OK if permitted else sqlite3.SQLITE_DENY
