"""Run statements on a SQLite file: read-only, each compiled under an authorizer, while the file stays as it was."""

from __future__ import annotations

import sqlite3
import time
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path

from sql_agent.database.guard import CheckedQuery
from sql_agent.database.schema import RequiredSchema, Schema, fold
from sql_agent.database.sqlite import allowed
from sql_agent.database.sqlite.dialect import SQLITE, SqliteDialect
from sql_agent.database.sqlite.failures import from_sqlite
from sql_agent.database.sqlite.file_state import FileState, check_unchanged
from sql_agent.database.sqlite.opening import read_only_connection, read_schema
from sql_agent.database.truncation import Row, fit
from sql_agent.errors import QueryError
from sql_agent.schemas import QueryLimits

_PROGRESS_STEPS = 10_000  # of SQLite's machine, about 0.1 ms, between two looks at the clock
# The writer of another process may hold the file; waiting ends long before the deadline, so that the answer says why:
# SQLite adds up the pauses that it asks for, and on a busy machine each lasts longer.
_LOCK_SHARE = 0.4
_FAILURES = (sqlite3.Error, sqlite3.Warning, MemoryError, OverflowError, ValueError)


def open_file(path: Path, required: RequiredSchema) -> tuple[SqliteFile, Schema]:
    """Check the database at `path`. Raises DatabaseFileError when it lacks something of `required`."""
    schema = read_schema(path, required)
    return SqliteFile(path, FileState.of(path)), schema


@dataclass(frozen=True)
class SqliteFile:
    """Connects to the file `source`, which was in `state` when it was opened."""

    source: Path
    state: FileState

    @property
    def dialect(self) -> SqliteDialect:
        return SQLITE

    def silence(self) -> str | None:
        """Return None: a file needs nobody to answer."""
        return None

    def connect(self, schema: Schema, limits: QueryLimits) -> SqliteConnection:
        """Open a connection for statements over `schema`. Raises QueryError."""
        return SqliteConnection(self.source, self.state, schema, lock_wait_s=limits.deadline_s * _LOCK_SHARE)


class SqliteConnection:
    """Asks, while SQLite compiles a statement, whether each part of it is allowed; the connection is read-only."""

    def __init__(self, path: Path, state: FileState, schema: Schema, *, lock_wait_s: float) -> None:
        self._path = path
        self._state = state
        self._schema = schema
        self._tables = frozenset(schema.columns)
        self._ctes: frozenset[str] = frozenset()
        try:
            self._raw = read_only_connection(path, lock_wait_s=lock_wait_s)
        except sqlite3.Error as error:
            check_unchanged(path, state)
            raise QueryError("failed", f"the database {path} cannot be opened: {error}") from error
        self._raw.set_authorizer(self._authorize)

    def run(self, checked: CheckedQuery, limits: QueryLimits) -> tuple[tuple[str, ...], tuple[Row, ...], bool]:
        """Run a checked statement; return its columns, the rows that fit into `limits`, and whether any are missing."""
        check_unchanged(self._path, self._state)
        self._ctes = checked.ctes
        try:
            with closing(self._raw.execute(checked.sql)) as cursor:
                result = fit((item[0] for item in cursor.description), cursor, limits)
        except _FAILURES as error:
            raise from_sqlite(error, checked.sql, self._schema) from error
        check_unchanged(self._path, self._state)
        return result

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

    def _authorize(
        self, action: int, first: str | None, second: str | None, database: str | None, _inner: str | None
    ) -> int:
        """SQLite's own view of the statement, so that a misreading by the guard cannot open another table."""
        permitted = action == sqlite3.SQLITE_SELECT
        if action == sqlite3.SQLITE_READ:
            table = fold(first or "")
            # A table of which no column is used is reported without its database; WITH queries likewise.
            unused_cte = table in self._ctes and not second and database is None
            permitted = unused_cte or (table in self._tables and database in {"main", None})
        elif action == sqlite3.SQLITE_FUNCTION:
            permitted = fold(second or "") in allowed.FUNCTIONS | allowed.IMPLICIT_FUNCTIONS
        return sqlite3.SQLITE_OK if permitted else sqlite3.SQLITE_DENY
