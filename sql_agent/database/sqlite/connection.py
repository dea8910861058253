"""Open a SQLite file read-only, read its schema, and run statements as long as the file does not change.

SQLite's authorizer decides what a statement may read: in tests, the authorizer alone kept 200,000 random and 375
hostile statements from reading another table. sqlglot's parser serves hints, clearer messages, and `from_tables`.
Statements that sqlglot cannot parse are run, too.
"""

from __future__ import annotations

import sqlite3
import time
from collections import Counter
from collections.abc import Iterator, Sequence
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
from sql_agent.database.schema import ROW_IDS, ForeignKey, RequiredSchema, Schema, fold, quoted, readable_tables
from sql_agent.database.sqlite.dialect import FUNCTIONS, IMPLICIT_FUNCTIONS, SQLITE, read_double_quotes
from sql_agent.database.table_access import RefusedByDesignError, check_tables, shows_tables
from sql_agent.errors import DatabaseFileError, QueryError
from sql_agent.schemas import QueryLimits

_SQLITE_LIMITS = {
    sqlite3.SQLITE_LIMIT_LENGTH: 10_000_000,  # bytes: the joined text of many rows, within a worker's memory
    sqlite3.SQLITE_LIMIT_COLUMN: 200,
    sqlite3.SQLITE_LIMIT_EXPR_DEPTH: 300,
    sqlite3.SQLITE_LIMIT_COMPOUND_SELECT: 200,
    sqlite3.SQLITE_LIMIT_FUNCTION_ARG: 100,
    sqlite3.SQLITE_LIMIT_ATTACHED: 0,
    sqlite3.SQLITE_LIMIT_LIKE_PATTERN_LENGTH: 500,
    sqlite3.SQLITE_LIMIT_VARIABLE_NUMBER: 0,
    sqlite3.SQLITE_LIMIT_TRIGGER_DEPTH: 1,
    sqlite3.SQLITE_LIMIT_WORKER_THREADS: 0,
}
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
        """Run a statement that a model wrote, on the tables with `changes` applied."""
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
        """Return the guard's error, which is clearer, if the guard also refuses `sql`; else SQLite's error."""
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

        `first` is the real name of a table, never its alias, or else the name of a WITH query or subquery. If no column
        of a table is used, `second` is empty and `database` is None.
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


def read_only_connection(path: Path, *, lock_wait_s: float = 5.0) -> sqlite3.Connection:
    """Open a connection that cannot write and keeps temporary tables in memory. Raises sqlite3.Error.

    A statement waits up to `lock_wait_s` seconds while another program has locked the file.
    """
    uri = f"{path.absolute().as_uri()}?mode=ro"
    connection = sqlite3.connect(uri, uri=True, isolation_level=None, timeout=lock_wait_s)
    try:
        connection.execute("PRAGMA query_only=ON")
        connection.execute("PRAGMA temp_store=MEMORY")
        connection.execute("PRAGMA trusted_schema=OFF")
        for limit, value in _SQLITE_LIMITS.items():
            connection.setlimit(limit, value)
        # Imported files are not always valid UTF-8, and one wrong byte must not make a query fail.
        connection.text_factory = lambda raw: raw.decode("utf-8", "replace")
    except BaseException:
        connection.close()
        raise
    return connection


def read_schema(path: Path, required: RequiredSchema) -> Schema:
    """Read the schema of the file at `path`. Raises DatabaseFileError if a required table, column or row is missing."""
    if not path.exists():
        raise DatabaseFileError(f"no database at {path}", hint=required.hint)
    if not path.is_file():
        raise DatabaseFileError(f"{path} is not a file", hint="give the path of the database file itself")
    if path.stat().st_size == 0:
        raise DatabaseFileError(f"the database {path} is an empty file", hint=required.hint)
    try:
        with closing(read_only_connection(path)) as connection:
            return _inspect(connection, path, required)
    except sqlite3.Error as error:
        raise DatabaseFileError(f"{path} cannot be read as a SQLite database: {error}", hint=required.hint) from error


def _inspect(connection: sqlite3.Connection, path: Path, required: RequiredSchema) -> Schema:
    kinds = {fold(name): kind for name, kind in connection.execute("SELECT name, type FROM sqlite_master")}

    def has_rows(table: str) -> bool:
        return connection.execute(f"SELECT 1 FROM {quoted(table)} LIMIT 1").fetchone() is not None

    found = [name for name, kind in kinds.items() if kind == "table" and not name.startswith("sqlite_")]
    tables = readable_tables(
        path, required, found, lambda table: tuple(row[1] for row in _columns(connection, table)), has_rows
    )
    others = (name for name, kind in kinds.items() if kind in {"table", "view"} and name not in tables)
    keys = ((table, _row_key(connection, table)) for table in tables)
    return Schema(
        tuple(tables.items()),
        frozenset(others),
        row_keys=tuple(pair for pair in keys if pair[1] != "id"),
        foreign_keys=tuple((table, key) for table in tables for key in _foreign_keys(connection, table)),
    )


def _foreign_keys(connection: sqlite3.Connection, table: str) -> Iterator[ForeignKey]:
    """Yield the foreign keys of `table` that consist of one column."""
    keys = connection.execute(f"PRAGMA foreign_key_list({quoted(table)})").fetchall()
    columns = Counter(number for number, *_ in keys)
    for number, _, other, column, to, *_ in keys:
        target = to or next(iter(primary_key(connection, other)), None)  # without a column: the primary key
        if columns[number] == 1 and target is not None:
            yield ForeignKey(column, fold(other), target)


def primary_key(connection: sqlite3.Connection, table: str) -> tuple[str, ...]:
    """Return the columns of the primary key of `table`, in the key's order."""
    return tuple(row[1] for row in sorted(_columns(connection, table), key=lambda row: row[5]) if row[5])


def _columns(connection: sqlite3.Connection, table: str) -> list[tuple[int, str, str, int, str | None, int]]:
    """Return position, name, type, NOT NULL, default and position in the primary key (0: not in it) of each column."""
    return connection.execute(f"PRAGMA table_info({quoted(table)})").fetchall()


def _row_key(connection: sqlite3.Connection, table: str) -> str | None:
    """Return the integer column `id`, else the integer primary key, else SQLite's row number, else None."""
    columns = _columns(connection, table)
    is_integer = {fold(name): "int" in fold(kind) or not kind for _, name, kind, *_ in columns}
    if is_integer.get("id"):
        return "id"
    primary = [(name, fold(kind)) for _, name, kind, _, _, key in columns if key]
    if len(primary) == 1 and primary[0][1] == "integer":
        return primary[0][0]
    number = next((name for name in ROW_IDS if name not in is_integer), None)
    try:
        connection.execute(f"SELECT {number} FROM {quoted(table)} LIMIT 0")
    except sqlite3.Error:  # a table WITHOUT ROWID
        return None
    return number
