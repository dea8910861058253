"""Open the database that rows are imported into: all of them are written or, on an error, none."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path

import pymysql
from pymysql.cursors import Cursor

from sql_agent.database import Source
from sql_agent.database.mysql.address import ServerAddress
from sql_agent.database.mysql.connection import connect_to
from sql_agent.database.mysql.failures import message_of
from sql_agent.database.schema import quoted
from sql_agent.errors import DataError
from sql_agent.tasks.medical.importers.records import Row
from sql_agent.tasks.medical.server_copy import server_table_sql
from sql_agent.tasks.medical.tables import TABLES, create_table_sql

# Adds a row; returns why the table cannot hold it, None where it was added.
Insert = Callable[[Row], str | None]


@contextmanager
def open_target(database: Source) -> Iterator[Insert]:
    """Yield what adds rows to `database`, in one transaction; tables that it lacks are made.

    Raises DataError when it cannot be written.
    """
    try:
        with _server(database) if isinstance(database, ServerAddress) else _file(database) as insert:
            yield insert
    except (OSError, sqlite3.Error, pymysql.Error) as error:
        hint = "check --db, and that you may write there"
        raise DataError(f"cannot write {database}: {message_of(error)}", hint=hint) from error


@contextmanager
def _file(path: Path) -> Iterator[Insert]:
    path.parent.mkdir(parents=True, exist_ok=True)
    is_new = not path.exists()
    try:
        with closing(sqlite3.connect(path, isolation_level=None)) as connection:
            connection.execute("PRAGMA cache_spill=OFF")  # nothing is in the file before the last row was read
            connection.execute("BEGIN IMMEDIATE")
            present = {name for (name,) in connection.execute("SELECT name FROM sqlite_master WHERE type = 'table'")}
            for table in TABLES.keys() - present:
                connection.execute(create_table_sql(table))

            def insert(row: Row) -> None:
                names, marks = ", ".join(row.values), ", ".join("?" * len(row.values))
                connection.execute(f"INSERT INTO {row.table} ({names}) VALUES ({marks})", tuple(row.values.values()))

            yield insert
            connection.execute("COMMIT")
    except BaseException:
        if is_new:
            path.unlink(missing_ok=True)
        raise


@contextmanager
def _server(address: ServerAddress) -> Iterator[Insert]:
    with closing(connect_to(address)) as connection, connection.cursor() as cursor:
        cursor.execute("SET SESSION sql_mode='STRICT_ALL_TABLES'")  # else texts are cut off with a warning only
        made = _make_tables(cursor, address)
        try:
            connection.begin()
            last_ids = {table: _last_id(cursor, table) for table in TABLES}

            def insert(row: Row) -> str | None:
                names = ", ".join(map(quoted, ("id", *row.values)))
                marks = ", ".join(["%s"] * (len(row.values) + 1))
                values = (last_ids[row.table] + 1, *row.values.values())
                try:
                    cursor.execute(f"INSERT INTO {row.table} ({names}) VALUES ({marks})", values)
                except pymysql.err.DataError as error:  # a text that is too long, or not of the column's characters
                    return message_of(error)
                last_ids[row.table] += 1
                return None

            yield insert
            connection.commit()
        except BaseException:
            if connection.open:
                connection.rollback()
                for table in made:  # a server cannot undo these together with the rows
                    cursor.execute(f"DROP TABLE {table}")
            raise


def _make_tables(cursor: Cursor, address: ServerAddress) -> list[str]:
    """Make the tables that are missing and return them. Raises DataError where an import could not be undone."""
    cursor.execute("SELECT table_name, engine FROM information_schema.tables WHERE table_schema = DATABASE()")
    engines: dict[str, str | None] = dict(cursor.fetchall())
    for table in TABLES.keys() & engines.keys():
        if not cursor.execute(
            "SELECT 1 FROM information_schema.engines WHERE engine = %s AND transactions = 'YES'", (engines[table],)
        ):
            raise DataError(
                f"{address}: the table {table} has no transactions, so a failed import could not be undone",
                hint=f"ALTER TABLE {table} ENGINE=InnoDB",
            )
    missing = [table for table in TABLES if table not in engines]
    for table in missing:
        cursor.execute(server_table_sql(table, TABLES[table]))
    return missing


def _last_id(cursor: Cursor, table: str) -> int:
    cursor.execute(f"SELECT MAX(id) FROM {table}")
    ((last,),) = cursor.fetchall()
    if not isinstance(last, int | None):
        raise DataError(f"the column id of {table} holds {last!r}, no number", hint="import into other tables")
    return last or 0
