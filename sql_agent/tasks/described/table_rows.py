"""Read the rows, keys and foreign keys of every table of a database."""

from __future__ import annotations

import datetime
import sqlite3
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, field
from decimal import Decimal
from functools import cached_property
from pathlib import Path

from sql_agent.database import RequiredSchema, Source, open_source
from sql_agent.database.dialect import Dialect
from sql_agent.database.schema import ForeignKey, Schema, fold, quoted
from sql_agent.database.sqlite.connection import primary_key, read_only_connection
from sql_agent.errors import DatabaseFileError, QueryError
from sql_agent.schemas import Cell, QueryLimits

MAX_ROWS = 20_000  # limit for each table; every question is checked against the whole table
_PATIENCE_S = 60.0
_HINT = "check the path or URL of the database"
_Read = Callable[[str], Sequence[tuple[object, ...]]]  # a function that runs a statement

_MYSQL_KEYS = """
SELECT table_name, column_name FROM information_schema.key_column_usage
WHERE table_schema = DATABASE() AND constraint_name = 'PRIMARY' ORDER BY ordinal_position LIMIT 10000"""
_MYSQL_COMMENTS = """
SELECT table_name, column_name, column_comment FROM information_schema.columns
WHERE table_schema = DATABASE() AND column_comment <> '' LIMIT 10000"""


@dataclass(frozen=True)
class Keys:
    """Keys of a table: the columns of its primary key, its foreign keys of one column, and comments by column."""

    primary: tuple[str, ...] = ()
    foreign: tuple[ForeignKey, ...] = ()
    comments: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, eq=False)
class TableRows:
    """The first `MAX_ROWS` rows of a table. `numbers` are the row keys of these rows; None without a row key."""

    name: str
    columns: tuple[str, ...]
    keys: Keys
    rows: tuple[tuple[Cell, ...], ...]
    numbers: tuple[int, ...] | None

    @cached_property
    def _cells(self) -> dict[str, tuple[Cell, ...]]:
        by_column = zip(*self.rows, strict=True) if self.rows else ((),) * len(self.columns)
        return {fold(name): cells for name, cells in zip(self.columns, by_column, strict=True)}

    def cells(self, column: str) -> tuple[Cell, ...]:
        return self._cells[fold(column)]


@dataclass(frozen=True)
class DatabaseRows:
    """All tables of a database. `unquoted` has the names that need no quotes in a statement."""

    tables: Mapping[str, TableRows]
    dialect: Dialect
    unquoted: frozenset[str]

    def written(self, name: str) -> str:
        """Return a table's or column's name as a statement writes it."""
        return name if name in self.unquoted else quoted(name)


def read_database(source: Source, required: RequiredSchema | None = None) -> DatabaseRows:
    """Read the database at `source`. Raises DatabaseFileError when it cannot be read or lacks what is `required`."""
    opened = open_source(source, required or RequiredSchema(None, _HINT), QueryLimits())
    schema, dialect = opened.schema, opened.engine.dialect
    try:
        with closing(opened.engine.connect(schema, opened.limits)) as connection:

            def read(sql: str) -> Sequence[tuple[object, ...]]:
                return connection.read(sql, _PATIENCE_S)

            keys = _keys(source, schema, read)
            tables = {
                table: _read_table(table, columns, keys[table], schema.row_key(table), read)
                for table, columns in schema.tables
            }
            unquoted = frozenset(_unquoted(schema.tables, read))
    except (QueryError, sqlite3.Error) as error:
        raise DatabaseFileError(f"{source} cannot be read: {error}", hint=_HINT) from error
    return DatabaseRows(tables, dialect, unquoted)


def _read_table(name: str, columns: tuple[str, ...], keys: Keys, row_key: str | None, read: _Read) -> TableRows:
    selected = ", ".join(map(quoted, (*columns, *([row_key] if row_key else []))))
    rows = [tuple(map(_cell, row)) for row in read(f"SELECT {selected} FROM {quoted(name)} LIMIT {MAX_ROWS}")]
    if row_key is None:
        return TableRows(name, columns, keys, tuple(rows), None)
    numbers = [row[-1] for row in rows if isinstance(row[-1], int)]
    is_key = len(set(numbers)) == len(rows)
    return TableRows(name, columns, keys, tuple(row[:-1] for row in rows), tuple(numbers) if is_key else None)


def _cell(value: object) -> Cell:
    """Return a value of a driver as a cell: a date as ISO text, a decimal as a number, a blob as None."""
    if isinstance(value, Decimal):
        return int(value) if value == value.to_integral_value() else float(value)
    if isinstance(value, datetime.date):
        return str(value)
    return value if isinstance(value, str | int | float) else None


def _unquoted(tables: Iterable[tuple[str, tuple[str, ...]]], read: _Read) -> Iterable[str]:
    """Yield the names of tables and columns that work without quotes, such as `price` but not `order`."""
    for table, columns in tables:
        if table.isidentifier() and _runs(f"SELECT 1 FROM {table} WHERE {table}.{quoted(columns[0])} IS NULL", read):
            yield table
        for column in columns:
            ordered = f"SELECT {column} FROM {quoted(table)} WHERE {column} IS NULL ORDER BY {column}"
            if column.isidentifier() and _runs(ordered, read):
                yield column


def _runs(sql: str, read: _Read) -> bool:
    try:
        read(f"{sql} LIMIT 0")
    except QueryError:
        return False
    return True


def _keys(source: Source, schema: Schema, read: _Read) -> dict[str, Keys]:
    """Return the keys by table. A foreign key of several columns is left out."""
    primary: dict[str, tuple[str, ...]] = {}
    comments: dict[str, dict[str, str]] = {}
    if isinstance(source, Path):
        with closing(read_only_connection(source)) as connection:
            primary = {table: primary_key(connection, table) for table in schema.columns}
    else:
        for table, column in read(_MYSQL_KEYS):
            primary[str(table)] = (*primary.get(str(table), ()), str(column))
        for table, column, comment in read(_MYSQL_COMMENTS):
            comments.setdefault(str(table), {})[str(column)] = str(comment)
    foreign: dict[str, list[ForeignKey]] = {}
    for table, key in schema.foreign_keys:
        foreign.setdefault(table, []).append(key)
    return {
        table: Keys(primary.get(table, ()), tuple(foreign.get(table, ())), comments.get(table, {}))
        for table in schema.columns
    }
