"""Runs checked statements on a SQLite file: read-only, with a deadline that interrupts, and capped answers."""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from types import TracebackType
from typing import Self

from sql_agent.database import allowed
from sql_agent.database.failures import from_sqlite
from sql_agent.database.guard import CheckedQuery, check
from sql_agent.database.hints import Hints
from sql_agent.database.opening import read_only_connection, read_schema
from sql_agent.database.provenance import CellRef, with_cells_emptied
from sql_agent.database.schema import RequiredSchema, Schema, fold
from sql_agent.database.truncation import column_name, fit
from sql_agent.database.watchdog import Watchdog
from sql_agent.errors import QueryError
from sql_agent.schemas import QueryAnswer, QueryFailure, QueryLimits

# Each of the few statements behind a hint may take this long; on the databases seen they take a tenth of it.
HINT_DEADLINE_S = 0.25


class SqliteDatabase:
    """A database file. `query` may be called from several threads at once, and after a fork.

    Raises DatabaseFileError when the file is missing, empty, no database, or lacks something of `required`; statements
    may read the tables of `required` and no others.
    """

    def __init__(self, path: str | Path, required: RequiredSchema, limits: QueryLimits | None = None) -> None:
        self.path = Path(path)
        self.limits = limits or QueryLimits()
        self.schema: Schema = read_schema(self.path, required)
        self._names = required.names
        self._closed = False
        self._start()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def query(self, sql: str, *, emptied: Sequence[CellRef] = ()) -> QueryAnswer:
        """Run one statement. A statement that is refused, fails or is too slow gives an answer with `error` set.

        The cells `emptied` read as NULL, which shows whether the statement needs them; there is no `hint` then.
        """
        try:
            checked = check(sql, self.schema)
            if emptied:
                tables = frozenset(fold(cell.table) for cell in emptied)
                plain = with_cells_emptied(checked.sql, self.schema, emptied)
                checked = replace(checked, sql=plain, ctes=checked.ctes | tables)
            with self._connection() as connection, self._watchdog.watching(connection.raw):
                answer = self._answer(connection, checked)
            return answer if emptied else answer.model_copy(update={"hint": self._hints.hint(checked.sql, answer)})
        except QueryError as error:
            failure = QueryFailure(kind=error.kind, message=error.message, hint=error.hint)
            return QueryAnswer(status="error", error=failure)

    def close(self) -> None:
        """Close the connections; a query that is still running closes its own when it ends."""
        self._closed = True
        while self._idle:
            self._idle.pop().raw.close()

    def _answer(self, connection: _Connection, checked: CheckedQuery) -> QueryAnswer:
        connection.ctes = checked.ctes
        try:
            cursor = connection.raw.execute(checked.sql)
            columns = tuple(column_name(item[0]) for item in cursor.description)
            records, truncated = fit(cursor, self.limits)
            cursor.close()
        except (sqlite3.Error, MemoryError, OverflowError) as error:
            raise from_sqlite(error, checked.sql, self.schema, self.limits) from error
        return QueryAnswer(
            status="ok",
            columns=columns,
            records=records,
            count=len(records),
            truncated=truncated,
            from_tables=checked.from_tables,
        )

    def _read(self, sql: str, watchdog: Watchdog) -> list[tuple[object, ...]]:
        """All rows of a statement of our own. Raises QueryError when it fails or is too slow."""
        with self._connection() as connection, watchdog.watching(connection.raw):
            try:
                return connection.raw.execute(sql).fetchall()
            except (sqlite3.Error, MemoryError, OverflowError) as error:
                raise from_sqlite(error, sql, self.schema, self.limits) from error

    def _start(self) -> None:
        self._process = os.getpid()
        self._idle: list[_Connection] = []
        self._watchdog = Watchdog(self.limits.deadline_s)
        brief = Watchdog(min(HINT_DEADLINE_S, self.limits.deadline_s))
        self._hints = Hints(
            self.schema,
            self._names,
            read=lambda sql: self._read(sql, brief),
            read_all=lambda sql: self._read(sql, self._watchdog),
        )

    def _connect(self) -> _Connection:
        return _Connection(self.path, frozenset(self.schema.columns))

    @contextmanager
    def _connection(self) -> Iterator[_Connection]:
        """An idle connection or a new one: each query has its own, so that none waits for another."""
        if self._closed:
            raise QueryError("failed", f"the database {self.path} is closed", hint="open it again")
        if self._process != os.getpid():
            # Neither SQLite's connections nor threads survive a fork; the parent keeps its own.
            self._start()
        try:
            connection = self._idle.pop() if self._idle else self._connect()
        except IndexError:  # another thread took the last one
            connection = self._connect()
        except sqlite3.Error as error:
            raise QueryError("failed", f"the database {self.path} cannot be opened: {error}") from error
        try:
            yield connection
        finally:
            self._idle.append(connection)
            if self._closed:
                self.close()


class _Connection:
    """A read-only connection that asks, while SQLite compiles a statement, whether each part of it is allowed.

    `tables` are the names, in lower case, of those that may be read, `ctes` those of the WITH queries of the statement
    that comes next.
    """

    def __init__(self, path: Path, tables: frozenset[str]) -> None:
        self.raw = read_only_connection(path)
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
