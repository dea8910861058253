"""Open a SQLite file read-only, and read its schema."""

from __future__ import annotations

import sqlite3
from collections import Counter
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

from sql_agent.database.schema import ROW_IDS, ForeignKey, RequiredSchema, Schema, fold, quoted, readable_tables
from sql_agent.errors import DatabaseFileError

_MAX_VALUE_BYTES = 10_000_000  # limit of a value: enough for the joined text of many rows, within a worker's memory
_SQLITE_LIMITS = {
    sqlite3.SQLITE_LIMIT_LENGTH: _MAX_VALUE_BYTES,
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
