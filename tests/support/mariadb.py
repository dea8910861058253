"""A MySQL or MariaDB server for tests: databases with names of their own, which are dropped afterwards."""

from __future__ import annotations

import functools
import os
import sqlite3
import uuid
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from urllib.parse import quote

import pymysql
import pytest
from pymysql.cursors import Cursor

from sql_agent.database import parse_source
from sql_agent.database.mysql.address import ServerAddress

# Where tests may create databases and users.
SERVER = os.environ.get("TEST_DATABASE_SERVER", "mysql+pymysql://root@127.0.0.1:3306")
PASSWORD = "p@ss:wörd/1"


@functools.cache
def _unreachable() -> str | None:
    try:
        administrator().close()
    except pymysql.Error as error:
        return f"no MariaDB at {SERVER.rpartition('@')[2]} to test with: {error}"
    return None


def administrator(database: str | None = None) -> pymysql.Connection[Cursor]:
    """Connect with all rights."""
    address = parse_source(f"{SERVER}/{database or 'mysql'}")
    assert isinstance(address, ServerAddress)
    return pymysql.connect(
        host=address.host,
        port=address.port,
        user=address.user,
        password=address.password,
        database=database,
        charset="utf8mb4",
        autocommit=True,
    )


def skip_without_server() -> None:
    """Skip the test where no server can be reached."""
    if reason := _unreachable():
        pytest.skip(reason)


@contextmanager
def empty_database() -> Iterator[str]:
    """Make a database; yield its URL for a user with all rights."""
    skip_without_server()
    name = f"sql_agent_test_{uuid.uuid4().hex[:12]}"
    url = f"{SERVER}/{name}"
    with closing(administrator()) as connection, connection.cursor() as cursor:
        cursor.execute(f"CREATE DATABASE {name} CHARACTER SET utf8mb4")
        try:
            yield url
        finally:
            cursor.execute(f"DROP DATABASE {name}")


def execute(url: str, sql: str) -> tuple[tuple[object, ...], ...]:
    """Run a statement with all rights in the database of `url` and return its rows."""
    with closing(administrator(url.rpartition("/")[2])) as connection, connection.cursor() as cursor:
        cursor.execute(sql)
        return tuple(cursor.fetchall())


@contextmanager
def copied_to_server(path: Path) -> Iterator[str]:
    """Copy all tables and views of the SQLite file at `path`; yield the URL of a user with all rights on the copy."""
    with empty_database() as url, closing(administrator()) as connection, connection.cursor() as cursor:
        server, _, name = url.rpartition("@")[2].rpartition("/")
        user = f"w_{name[-12:]}"
        try:
            _copy(path, name)
            cursor.execute(f"CREATE USER '{user}'@'%%' IDENTIFIED BY %s", (PASSWORD,))
            cursor.execute(f"GRANT ALL ON *.* TO '{user}'@'%'")
            yield f"mysql+pymysql://{user}:{quote(PASSWORD, safe='')}@{server}/{name}"
        finally:
            cursor.execute(f"DROP USER IF EXISTS '{user}'@'%'")


def _copy(path: Path, name: str) -> None:
    with closing(sqlite3.connect(path)) as source, closing(administrator(name)) as target, target.cursor() as cursor:
        objects = source.execute("SELECT name, sql, type FROM sqlite_master WHERE type IN ('table', 'view')").fetchall()
        for table, create, kind in objects:
            if table.startswith("sqlite_"):
                continue
            cursor.execute(create.replace('"', "`"))
            if kind == "view":
                continue
            rows = source.execute(f"SELECT * FROM `{table}`").fetchall()
            marks = ", ".join(["%s"] * len(rows[0]))
            cursor.executemany(f"INSERT INTO `{table}` VALUES ({marks})", rows)
        cursor.execute("CREATE FUNCTION steal() RETURNS TEXT READS SQL DATA RETURN (SELECT MAX(password) FROM secrets)")
