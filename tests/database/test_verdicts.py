"""Both engines give the verdicts of one table of statements, and answer what they run as the engine alone would."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing
from decimal import Decimal
from pathlib import Path

import pymysql
import pytest
from pymysql.cursors import Cursor

from sql_agent.database import Database, RequiredSchema, open_database
from sql_agent.database.answers import KINDS
from tests.database import college, ordinary_medical
from tests.database.conftest import LIMITS
from tests.database.hostile_mysql import HOSTILE
from tests.database.ordinary_statements import ORDINARY
from tests.database.verdicts import BY_ENGINE, VERDICTS
from tests.support.mariadb import administrator, copied_to_server
from tests.support.small_database import CANARY

Rows = list[tuple[object, ...]]
Alone = Callable[[str], Rows | None]


@pytest.fixture(scope="module")
def sqlite_alone(file_database: Database) -> Iterator[Alone]:
    with closing(sqlite3.connect(Path(str(file_database.source)))) as connection:
        yield sqlite_rows(connection)


@pytest.fixture(scope="module")
def server_alone(server_url: str) -> Iterator[Alone]:
    with closing(administrator(server_url.rpartition("/")[2])) as connection:
        yield server_rows(connection)


def sqlite_rows(connection: sqlite3.Connection) -> Alone:
    return lambda sql: _rows(lambda: connection.execute(sql).fetchall())


def server_rows(connection: pymysql.Connection[Cursor]) -> Alone:
    cursor = connection.cursor()
    cursor.execute("SET SESSION sql_mode = 'PIPES_AS_CONCAT', max_statement_time = 2")

    def run(sql: str) -> Rows:
        cursor.execute(sql.removeprefix("\ufeff"))
        return list(cursor.fetchall())

    return lambda sql: _rows(lambda: run(sql))


def _rows(run: Callable[[], Rows]) -> Rows | None:
    try:
        return [tuple(map(_plain, row)) for row in run()]
    except (sqlite3.Error, sqlite3.Warning, pymysql.Error):
        return None


def _plain(cell: object) -> object:
    if isinstance(cell, bytes):
        return f"<{len(cell)} bytes of binary data>"
    if isinstance(cell, Decimal):
        return float(cell)
    return cell if cell is None or isinstance(cell, int | float) else str(cell)


def holds(database: Database, alone: Alone, sql: str, verdict: str) -> None:
    answer = database.query(sql)
    assert (answer.error.kind if answer.error else "ok") == verdict, answer
    if verdict == "ok":
        assert list(answer.records) == alone(sql)
    elif verdict in BY_ENGINE and sql:
        assert alone(sql) is None
    assert answer.error is None or answer.error.hint


@pytest.mark.parametrize(("sql", "verdict"), [(sql, sqlite) for sql, sqlite, _ in VERDICTS])
def test_sqlite_gives_its_verdict(file_database: Database, sqlite_alone: Alone, sql: str, verdict: str) -> None:
    holds(file_database, sqlite_alone, sql, verdict)


@pytest.mark.parametrize(("sql", "verdict"), [(sql, mysql) for sql, _, mysql in VERDICTS])
def test_mariadb_gives_its_verdict(server_database: Database, server_alone: Alone, sql: str, verdict: str) -> None:
    holds(server_database, server_alone, sql, verdict)


def answers_as_alone(database: Database, alone: Alone, statements: Sequence[str], share: float) -> None:
    """Of `statements` the engine runs at least `share`; at most 2 % of these are refused, and no answer differs."""
    ran, refused, different = 0, [], []
    for sql in statements:
        if (rows := alone(sql)) is None:
            continue
        ran += 1
        answer = database.query(sql)
        if answer.error is not None:
            refused.append((sql, answer.error))
        elif list(answer.records) != rows:
            different.append((sql, answer.records, rows))
    assert different == []
    assert ran >= len(statements) * share
    assert len(refused) <= ran * 0.02, refused


def test_ordinary_statements_are_answered_as_mariadb_answers_them(
    server_database: Database, server_alone: Alone
) -> None:
    answers_as_alone(server_database, server_alone, ORDINARY, 0.6)
    answers_as_alone(server_database, server_alone, ordinary_medical.STATEMENTS, 0.9)


def test_more_ordinary_statements_are_answered_as_sqlite_answers_them(
    file_database: Database, sqlite_alone: Alone
) -> None:
    answers_as_alone(file_database, sqlite_alone, ordinary_medical.STATEMENTS, 0.8)


def test_those_over_tables_of_another_field_too(tmp_path: Path) -> None:
    path, any_table = college.make_college(tmp_path / "college.db"), RequiredSchema(None, hint="")
    with open_database(path, any_table, LIMITS) as database, closing(sqlite3.connect(path)) as connection:
        answers_as_alone(database, sqlite_rows(connection), college.STATEMENTS, 0.9)
    with (
        copied_to_server(path) as url,
        open_database(url, any_table, LIMITS) as database,
        closing(administrator(url.rpartition("/")[2])) as connection,
    ):
        answers_as_alone(database, server_rows(connection), college.STATEMENTS, 0.9)


@pytest.mark.parametrize("category", HOSTILE)
def test_no_hostile_statement_runs_on_mariadb(server_database: Database, category: str) -> None:
    for sql in HOSTILE[category]:
        answer = server_database.query(sql)
        assert answer.error is not None, sql
        assert answer.error.kind in KINDS
        assert answer.error.hint, sql
        assert CANARY not in str(answer)
