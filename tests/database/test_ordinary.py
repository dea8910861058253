"""What models ordinarily write is answered as the engine alone would answer it; what is refused says what to write."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from pathlib import Path

import pytest

from sql_agent.database import Database, open_database
from sql_agent.schemas import QueryLimits
from sql_agent.tasks.medical.tables import SCHEMA
from tests.database.ordinary_statements import ASK_FOR_THE_SCHEMA, ORDINARY, OTHER_DIALECTS
from tests.support.small_database import make_database


@pytest.fixture(scope="module")
def database(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Database]:
    path = make_database(tmp_path_factory.mktemp("ordinary") / "medical.db")
    limits = QueryLimits(deadline_s=3, max_rows=1000, max_chars=1_000_000)
    with open_database(path, SCHEMA, limits) as opened:
        yield opened


def alone(path: Path, sql: str) -> list[tuple[object, ...]] | None:
    """The rows of the engine without us, binary data as we show it; None when it refuses the statement."""
    connection = sqlite3.connect(path)
    try:
        rows = connection.execute(sql.removeprefix("\ufeff")).fetchall()
    except sqlite3.Error:
        return None
    finally:
        connection.close()
    shown = [[f"<{len(c)} bytes of binary data>" if isinstance(c, bytes) else c for c in row] for row in rows]
    return [tuple(row) for row in shown]


def test_there_are_enough_of_them() -> None:
    assert len(set(ORDINARY)) >= 200


def test_at_most_two_in_a_hundred_that_the_engine_runs_are_refused_and_no_answer_differs(
    database: Database,
) -> None:
    ran, refused, different = 0, [], []
    for sql in ORDINARY:
        rows = alone(Path(str(database.source)), sql)
        if rows is None:
            continue
        ran += 1
        answer = database.query(sql)
        if answer.error is not None:
            refused.append((sql, answer.error))
        elif list(answer.records) != rows:
            different.append(sql)
    assert different == []
    assert ran >= 180
    assert len(refused) <= ran * 0.02, refused


@pytest.mark.parametrize(
    ("sql", "part"),
    [
        ("SELECT TOP 5 med_name FROM drugs_info", "LIMIT 5"),
        ("SELECT STRING_AGG(med_name, ', ') FROM drugs_info", "group_concat"),
        ("SELECT LEFT(med_name, 3) FROM drugs_info", "substr"),
        ("SELECT YEAR(created_at) FROM drugs_info", "strftime"),
        ("SELECT med_name FROM drugs_info HAVING id = 3", "WHERE"),
        ("SELECT med_name FROM drugs_info WHERE COUNT(*) > 1", "HAVING"),
        ("SELECT id FROM drugs_info UNION SELECT id, overview FROM disease", "as many columns"),
        ("SELECT med_name::text FROM drugs_info", "CAST"),
        ("SELECT id FROM drugs_info WHERE \"nam\" = 'x'", "single quotes"),
        ("SELECT id FROM disease WHERE id = (SELECT id, overview FROM disease)", "as many values"),
        ("SHOW TABLES", "disease has id"),
        ("SELECT json('[1,')", "json_valid"),
    ],
)
def test_an_error_says_what_to_write_instead(database: Database, sql: str, part: str) -> None:
    error = database.query(sql).error
    assert error is not None
    assert part in str(error.hint)
    assert error.kind != "database_changed"


def test_every_refusal_has_a_hint(database: Database) -> None:
    for sql in [*OTHER_DIALECTS, *ASK_FOR_THE_SCHEMA]:
        error = database.query(sql).error
        assert error is None or error.hint, (sql[:100].encode("utf-8", "replace"), error)
