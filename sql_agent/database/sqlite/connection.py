"""Run statements on a SQLite file: read-only, each compiled under an authorizer, while the file stays as it was.

SQLite judges first: its authorizer decides what may be read. The parser comes after, for hints, for better messages,
and to tell whether the rows come from tables; a statement that it cannot read is answered all the same. The authorizer
alone, without a parser, let none of 200,000 random and 375 hostile statements read another table.
"""

from __future__ import annotations

import re
import sqlite3
import time
from collections.abc import Sequence
from contextlib import closing
from dataclasses import dataclass, replace
from pathlib import Path

from sql_agent.database.answers import DATABASE_CHANGED, UNAVAILABLE, fit
from sql_agent.database.counterfactual import Change, changed_statement
from sql_agent.database.deadline import Deadline, OutOfTime
from sql_agent.database.failures import from_sqlite, unknown_quoted
from sql_agent.database.guard import Result, check, clean, parse, refuse_listing
from sql_agent.database.schema import RequiredSchema, Schema, fold
from sql_agent.database.scope import RefusedByDesignError, check_tables, shows_tables
from sql_agent.database.sqlite.dialect import FUNCTIONS, IMPLICIT_FUNCTIONS, SQLITE, SqliteDialect, read_double_quotes
from sql_agent.database.sqlite.opening import read_only_connection, read_schema
from sql_agent.errors import QueryError
from sql_agent.schemas import QueryLimits

_PROGRESS_STEPS = 10_000  # of SQLite's machine, about 0.1 ms, between two looks at the clock
# The writer of another process may hold the file; waiting ends long before the deadline, so that the answer says why:
# SQLite adds up the pauses that it asks for, and on a busy machine each lasts longer.
_LOCK_SHARE = 0.4
_FAILURES = (sqlite3.Error, sqlite3.Warning, MemoryError, OverflowError, ValueError)
# Whatever else these begin, SQLite's authorizer allows two statements that say too much or nothing: EXPLAIN, VALUES.
_SELECT = re.compile(
    r"(?>[\s\ufeff(]|--[^\n]*(?:\n|\Z)|/\*.*?(?:\*/|\Z))*+(?:SELECT|WITH)\b", re.IGNORECASE | re.DOTALL
)
_NOT_THE_STATEMENTS_FAULT = frozenset({"timeout", UNAVAILABLE, DATABASE_CHANGED})

_State = tuple[int, int, int, int]


def open_file(path: Path, required: RequiredSchema) -> tuple[SqliteFile, Schema]:
    """Check the database at `path`. Raises DatabaseFileError when it lacks something of `required`."""
    schema = read_schema(path, required)
    return SqliteFile(path, FileState.of(path)), schema


@dataclass(frozen=True)
class FileState:
    """Identifies one content of a database file by device, inode, size and time of change.

    `log` is that of SQLite's write-ahead log, where there is one that is not empty.
    """

    file: _State
    log: _State | None

    @classmethod
    def of(cls, path: Path) -> FileState:
        """Return the state of the file at `path` now. Raises OSError when there is none."""
        try:
            log = _state(path.with_name(f"{path.name}-wal"))
        except OSError:
            log = None
        return cls(_state(path), log if log and log[2] else None)


def _without_comments(sql: str) -> str:
    try:
        return clean(sql, SQLITE)
    except QueryError:
        return sql


def _state(path: Path) -> _State:
    found = path.stat()
    return found.st_dev, found.st_ino, found.st_size, found.st_mtime_ns


@dataclass(frozen=True)
class SqliteFile:
    """Connects to the file `source`, which was in `state` when it was opened."""

    source: Path
    state: FileState

    @property
    def dialect(self) -> SqliteDialect:
        return SQLITE

    def silence(self) -> str | None:
        """Return None: no server must respond."""
        return None

    def connect(self, schema: Schema, limits: QueryLimits) -> SqliteConnection:
        """Open a connection for statements over `schema`. Raises QueryError."""
        return SqliteConnection(self.source, self.state, schema, lock_wait_s=limits.deadline_s * _LOCK_SHARE)


class SqliteConnection:
    """A read-only connection whose authorizer decides, while SQLite compiles a statement, about each part of it."""

    def __init__(self, path: Path, state: FileState, schema: Schema, *, lock_wait_s: float) -> None:
        self._path = path
        self._state = state
        self._schema = schema
        self._tables = frozenset(schema.columns)
        self._has_read_column = False
        try:
            self._raw = read_only_connection(path, lock_wait_s=lock_wait_s)
            modules = {fold(name) for (name,) in self._raw.execute("PRAGMA module_list")}
        except sqlite3.Error as error:
            self._check_unchanged()
            raise QueryError("failed", f"the database {path} cannot be opened: {error}") from error
        self._others = schema.other_tables | modules
        self._raw.set_authorizer(self._authorize)

    def run(self, sql: str, changes: Sequence[Change], limits: QueryLimits, deadline: Deadline) -> Result:
        """Run a statement that a model wrote, over the tables with `changes`.

        Raises QueryError.
        """
        refuse_listing(sql, self._schema)
        if not _SELECT.match(sql):
            clean(sql, SQLITE)
            check(sql, self._schema, SQLITE)
            raise QueryError("not_select", "this is no SELECT", hint="only SELECT, or WITH followed by SELECT")
        text = sql.removeprefix("\ufeff").rstrip("; \t\r\n")
        if changes:
            text = changed_statement(_without_comments(text), self._schema, changes, SQLITE)
        self._check_unchanged()
        self._has_read_column = False
        self._raw.set_progress_handler(deadline.ends_statement, _PROGRESS_STEPS)
        try:
            with closing(self._raw.execute(text)) as cursor:
                columns, records, truncated = fit((item[0] for item in cursor.description), cursor, limits)
        except _FAILURES as error:
            raise self._failure(error, sql, limits, deadline) from error
        finally:
            self._raw.set_progress_handler(None, 0)
        self._check_unchanged()
        result = Result(columns, records, truncated, from_tables=self._has_read_column)
        return result if changes else self._parsed(sql, result, deadline)

    def read(self, sql: str, seconds: float | None = None) -> list[tuple[object, ...]]:
        """Return all rows of a statement of our own. Raises QueryError when it fails or takes more than `seconds`."""
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
        """End the connection."""
        self._raw.close()

    def _parsed(self, sql: str, result: Result, deadline: Deadline) -> Result:
        """Add the tree to the result of `sql`, and whether its rows come from tables, as far as the parser can tell.

        Raises QueryError for statements that SQLite accepts but whose results mislead: WITH queries that redefine a
        table, and names in double quotes that are no columns.
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

    def _failure(self, error: BaseException, sql: str, limits: QueryLimits, deadline: Deadline) -> QueryError:
        """Return why `sql` failed, in the words of the guard where it would refuse the statement too."""
        said = from_sqlite(error, sql, self._schema)
        if said.kind == "timeout":
            message = f"interrupted after {limits.deadline_s:g} seconds"
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
        """Raise QueryError when the file is not in the state in which it was opened: replaced, changed or removed."""
        try:
            now = FileState.of(self._path)
        except OSError as error:
            raise QueryError(
                DATABASE_CHANGED, f"the database {self._path} is gone: {error.strerror}", hint="put the file back"
            ) from error
        if now == self._state:
            return
        what = "was replaced" if now.file[:2] != self._state.file[:2] else "was changed"
        message = f"the database {self._path} {what} while it was open"
        raise QueryError(DATABASE_CHANGED, message, hint="start again to query it as it is now")

    def _authorize(
        self, action: int, first: str | None, second: str | None, database: str | None, _inner: str | None
    ) -> int:
        """Decide about one part of a statement; SQLite asks before it runs the statement.

        SQLite names a table by its real name, whatever its alias, so another name is that of a WITH query or subquery.
        A table of which no column is used has no `database` and an empty column.
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
