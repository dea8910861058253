"""Copy a medical SQLite file to a MySQL or MariaDB server, and create a read-only database user."""

from __future__ import annotations

import secrets
import sqlite3
from collections.abc import Sequence
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import pymysql
from pymysql.cursors import Cursor

from sql_agent.database.failures import message_of
from sql_agent.database.mysql.address import ServerAddress
from sql_agent.database.mysql.connection import connect_to
from sql_agent.database.schema import quoted
from sql_agent.database.sqlite.connection import read_only_connection, read_schema
from sql_agent.errors import DatabaseFileError
from sql_agent.tasks.medical.tables import SCHEMA, TABLES

_ROWS_AT_ONCE = 500


def copy_to_server(path: Path, address: ServerAddress, *, over: bool) -> dict[str, int]:
    """Copy the two tables of the SQLite file `path` to the database at `address`; return the number of rows by table.

    A missing database is created; `over` replaces existing tables. Raises DatabaseFileError when the file or the server
    cannot be used, or a table exists and `over` is false.
    """
    schema = read_schema(path, SCHEMA)
    try:
        with closing(connect_to(replace(address, database=""))) as server, server.cursor() as cursor:
            name = quoted(address.database)
            cursor.execute(f"CREATE DATABASE IF NOT EXISTS {name} CHARACTER SET utf8mb4")
            cursor.execute(f"USE {name}")
            _drop_tables(cursor, address, over=over)
            with closing(read_only_connection(path)) as source:
                return {table: _copy(source, cursor, table, columns) for table, columns in schema.tables}
    except (pymysql.Error, OSError, sqlite3.Error) as error:
        message = f"{path} cannot be copied to {address}: {message_of(error)}"
        hint = "check the URL; its user needs the right to create databases and tables"
        raise DatabaseFileError(message, hint=hint) from error


def server_table_sql(table: str, columns: Sequence[str]) -> str:
    """Return the CREATE TABLE statement for a server: `id` is the integer key, all other columns are text."""
    # Without an index on names, statements without ORDER BY return rows by id, as in the SQLite file.
    types = ", ".join(f"{quoted(name)} {'BIGINT PRIMARY KEY' if name == 'id' else 'MEDIUMTEXT'}" for name in columns)
    return f"CREATE TABLE {table} ({types}) ENGINE=InnoDB CHARACTER SET utf8mb4"


def make_reader(address: ServerAddress, name: str) -> ServerAddress:
    """Create the user `name` with SELECT rights on the two tables; return the address with this user's new password.

    Raises DatabaseFileError when the server refuses, for example because the user exists already.
    """
    password = secrets.token_urlsafe(18)
    try:
        with closing(connect_to(address)) as server, server.cursor() as cursor:
            cursor.execute("CREATE USER %s@'%%' IDENTIFIED BY %s", (name, password))
            for table in TABLES:
                cursor.execute(f"GRANT SELECT ON {quoted(address.database)}.{table} TO %s@'%%'", (name,))
    except (pymysql.Error, OSError) as error:
        message = f"the user {name} cannot be created at {address}: {message_of(error)}"
        hint = "choose another --reader, or a URL whose user may create users"
        raise DatabaseFileError(message, hint=hint) from error
    return replace(address, user=name, password=password)


def _drop_tables(cursor: Cursor, address: ServerAddress, *, over: bool) -> None:
    for table in TABLES:
        if not over and cursor.execute("SHOW TABLES LIKE %s", (table,)):
            raise DatabaseFileError(f"{address} has a table {table} already", hint="add --replace to replace its rows")
        cursor.execute(f"DROP TABLE IF EXISTS {table}")


def _copy(source: sqlite3.Connection, cursor: Cursor, table: str, columns: tuple[str, ...]) -> int:
    cursor.execute(server_table_sql(table, columns))
    rows = source.execute(f"SELECT {', '.join(map(quoted, columns))} FROM {table} ORDER BY id")
    statement = f"INSERT INTO {table} VALUES ({', '.join(['%s'] * len(columns))})"
    count = 0
    while some := rows.fetchmany(_ROWS_AT_ONCE):
        cursor.executemany(statement, some)
        count += len(some)
    return count
