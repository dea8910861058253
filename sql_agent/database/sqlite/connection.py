"""Run statements on a SQLite file that is opened read-only, as long as the file does not change.

SQLite's authorizer decides what a statement may read: in tests, the authorizer alone kept 200,000 random and 375
hostile statements from reading another table. sqlglot's parser serves hints, clearer messages, and `from_tables`.
Statements that sqlglot cannot parse are run, too.
"""

from __future__ import annotations

import sqlite3
import time
from collections.abc import Sequence
from contextlib import closing, suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import ClassVar

from sql_agent.database.answers import DATABASE_CHANGED, UNAVAILABLE, fit
from sql_agent.database.counterfactual import Change, changed_statement
from sql_agent.database.deadline import Deadline, OutOfTime
from sql_agent.database.dialect import Dialect
from sql_agent.database.failures import from_sqlite, unknown_quoted
from sql_agent.database.guard import Result, check, check_start, clean, parse
from sql_agent.database.schema import RequiredSchema, Schema, fold
from sql_agent.database.sqlite.dialect import FUNCTIONS, IMPLICIT_FUNCTIONS, SQLITE, read_double_quotes
from sql_agent.database.sqlite.opening import read_only_connection, read_schema
from sql_agent.database.table_access import RefusedByDesignError, check_tables, shows_tables
from sql_agent.errors import QueryError
from sql_agent.schemas import QueryLimits

_PROGRESS_STEPS = 10_000  # steps of SQLite's virtual machine between two checks of the deadline, about 0.1 ms
# Share of the deadline to wait for the write lock of another process. The rest is needed to report the lock in time:
# SQLite counts the pauses that it requests, and on a busy machine each pause lasts longer.
_LOCK_SHARE = 0.4
_FAILURES = (sqlite3.Error, sqlite3.Warning, MemoryError, OverflowError, ValueError)
_NOT_THE_STATEMENTS_FAULT = frozenset({"timeout", UNAVAILABLE, DATABASE_CHANGED})

_State = tuple[tuple[int, int, int, int], ...]


def open_file(path: Path, required: RequiredSchema) -> tuple[SqliteFile, Schema]:
    """Check the database at `path` as `read_schema` does, and return the file and the schema."""
    schema = read_schema(path, required)
    return SqliteFile(path, _state(path)), schema


def _state(path: Path) -> _State:
    """Return device, inode, size in bytes and modification time in ns of the file and of a non-empty write-ahead log.

    Raises OSError if the file does not exist.
    """
    found = [path.stat()]
    with suppress(OSError):
        found += [log for log in [path.with_name(f"{path.name}-wal").stat()] if log.st_size]
    return tuple((each.st_dev, each.st_ino, each.st_size, each.st_mtime_ns) for each in found)


@dataclass(frozen=True)
class SqliteFile:
    """The database file `source`; `state` is its fingerprint at opening."""

    source: Path
    state: _State
    dialect: ClassVar[Dialect] = SQLITE

    def silence(self) -> None:
        """Return None: a file needs no server that could fail to respond."""

    def connect(self, schema: Schema, limits: QueryLimits) -> SqliteConnection:
        """Open a connection that runs statements on the tables of `schema`. Raises QueryError."""
        return SqliteConnection(self, schema, limits)


class SqliteConnection:
    """A read-only connection. While SQLite compiles a statement, the authorizer permits or denies each part.

    `run` and `read` raise QueryError if a statement fails.
    """

    def __init__(self, file: SqliteFile, schema: Schema, limits: QueryLimits) -> None:
        self._path = file.source
        self._state = file.state
        self._limits = limits
        self._schema = schema
        self._tables = frozenset(schema.columns)
        self._has_read_column = False
        try:
            self._raw = read_only_connection(self._path, lock_wait_s=limits.deadline_s * _LOCK_SHARE)
            modules = {fold(name) for (name,) in self._raw.execute("PRAGMA module_list")}
        except sqlite3.Error as error:
            self._check_unchanged()
            message = f"the database {self._path} cannot be opened: {error}"
            raise QueryError("failed", message, hint="check that the file can be read") from error
        self._others = schema.other_tables | modules
        self._raw.set_authorizer(self._authorize)

    def run(self, sql: str, changes: Sequence[Change], deadline: Deadline) -> Result:
        """Run a statement that a model wrote, on the tables after `changes`."""
        check_start(sql, self._schema, SQLITE)
        text = sql.removeprefix("\ufeff").rstrip("; \t\r\n")
        if changes:
            with suppress(QueryError):  # SQLite accepts characters that `clean` refuses
                text = clean(text, SQLITE)
            text = changed_statement(text, self._schema, changes, SQLITE)
        self._check_unchanged()
        self._has_read_column = False
        self._raw.set_progress_handler(deadline.ends_statement, _PROGRESS_STEPS)
        try:
            with closing(self._raw.execute(text)) as cursor:
                columns, records, truncated = fit((item[0] for item in cursor.description), cursor, self._limits)
        except _FAILURES as error:
            raise self._failure(error, sql, deadline) from error
        finally:
            self._raw.set_progress_handler(None, 0)
        self._check_unchanged()
        result = Result(columns, records, truncated, from_tables=self._has_read_column)
        return result if changes else self._parsed(sql, result, deadline)

    def read(self, sql: str, seconds: float | None = None) -> list[tuple[object, ...]]:
        """Return all rows of a trusted statement. Raises QueryError after `seconds`; None means no limit."""
        if seconds is not None:
            due = time.monotonic() + seconds
            self._raw.set_progress_handler(lambda: time.monotonic() > due, _PROGRESS_STEPS)
        try:
            return self._raw.execute(sql).fetchall()
        except _FAILURES as error:
            raise from_sqlite(error, sql, self._schema) from error
        finally:
            self._raw.set_progress_handler(None, 0)

    def close(self) -> None:
        self._raw.close()

    def _parsed(self, sql: str, result: Result, deadline: Deadline) -> Result:
        """Return `result` with the tree of `sql` and a more exact `from_tables`, if sqlglot can parse `sql`.

        Raises QueryError if the result would mislead: if a WITH query redefines a table, or a name in double quotes is
        no column.
        """
        try:
            with deadline.enforced():
                text = clean(sql, SQLITE)
                tree = parse(text, SQLITE)
                name = read_double_quotes(text, tree, self._schema)
        except (OutOfTime, Exception):  # also sqlglot's own faults
            return result
        if name is not None:
            raise unknown_quoted(name, tree, self._schema)
        try:
            check_tables(tree, self._schema, SQLITE)
            from_tables = shows_tables(tree, self._schema, SQLITE)
        except RefusedByDesignError:
            raise
        except (QueryError, RecursionError):
            from_tables = result.from_tables
        return replace(result, tree=tree, from_tables=from_tables)

    def _failure(self, error: BaseException, sql: str, deadline: Deadline) -> QueryError:
        """Return why `sql` failed: the guard's error, which is clearer, if the guard refuses `sql`; else SQLite's."""
        said = from_sqlite(error, sql, self._schema)
        if said.kind == "timeout":
            message = f"interrupted after {self._limits.deadline_s:g} seconds"
            return QueryError("timeout", message, hint=said.hint)
        if said.kind in _NOT_THE_STATEMENTS_FAULT:
            return said
        try:
            with deadline.enforced():
                check(sql, self._schema, SQLITE)
        except QueryError as refused:
            return refused
        except (OutOfTime, Exception):  # also sqlglot's own faults
            return said
        return said

    def _check_unchanged(self) -> None:
        """Raise QueryError if the file was replaced, changed or removed since it was opened."""
        try:
            now = _state(self._path)
        except OSError as error:
            raise QueryError(
                DATABASE_CHANGED, f"the database {self._path} is gone: {error.strerror}", hint="put the file back"
            ) from error
        if now == self._state:
            return
        what = "was replaced" if now[0][:2] != self._state[0][:2] else "was changed"
        message = f"the database {self._path} {what} while it was open"
        raise QueryError(DATABASE_CHANGED, message, hint="start again to query the new content")

    def _authorize(
        self, action: int, first: str | None, second: str | None, database: str | None, _inner: str | None
    ) -> int:
        """Permit or deny one part of a statement, before SQLite runs the statement.

        `first` is the name of a table, not an alias, so an unknown name is that of a WITH query or subquery. If no
        column of a table is used, `second` is empty and `database` is None.
        """
        permitted = action == sqlite3.SQLITE_SELECT
        if action == sqlite3.SQLITE_READ:
            table = fold(first or "")
            is_table = table in self._tables and database in {"main", None}
            self._has_read_column |= is_table and bool(second)
            is_hidden = table in self._tables or table in self._others or table.startswith(("sqlite_", "pragma_"))
            permitted = is_table or not is_hidden
        elif action == sqlite3.SQLITE_FUNCTION:
            permitted = fold(second or "") in FUNCTIONS | IMPLICIT_FUNCTIONS
        return sqlite3.SQLITE_OK if permitted else sqlite3.SQLITE_DENY
