"""Evidence is found and checked in a file and on a server, whatever the texts in it hold."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from sql_agent.database import DatabasePool, RequiredSchema, open_database
from sql_agent.database.schema import Naming
from sql_agent.questions.derived_evidence import with_derived_evidence
from sql_agent.questions.question_check import count_quotes
from sql_agent.schemas import Evidence, Question
from sql_agent.tasks.medical.medical_task import TASK
from tests.support.mariadb import empty_database, execute

CELL = r"Take 5\10 mg; it's " "fine" ""
TABLES = (
    "CREATE TABLE `order` (id INTEGER PRIMARY KEY, `group` TEXT)",
    "INSERT INTO `order` VALUES (1, 'other'), (2, '{cell}')",
)


@pytest.fixture(params=["file", "server"])
def databases(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[DatabasePool]:
    required = RequiredSchema(None, "make it")
    quoted = CELL.replace("'", "''")
    if request.param == "file":
        with closing(sqlite3.connect(tmp_path / "a.db")) as connection:
            connection.executescript(";".join(TABLES).format(cell=quoted))
        with DatabasePool(lambda _: open_database(tmp_path / "a.db", required)) as pool:
            yield pool
        return
    with empty_database() as url:
        for sql in TABLES:
            execute(url, sql.format(cell=quoted.replace("\\", "\\\\")))
        with DatabasePool(lambda _: open_database(url, required)) as pool:
            yield pool


def test_a_quoted_cell_is_found_and_stands_and_what_cannot_be_asked_for_is_counted(databases: DatabasePool) -> None:
    prose = f"Mind this:\n\n{CELL}"
    question = Question(id="1", question="What?", answer=prose, sql="SELECT `group` FROM `order` WHERE id = 2")
    (derived,) = with_derived_evidence([question], databases, TASK.words)
    assert derived.evidence == (Evidence(table="order", row_id=2, field="group", quote=CELL),)
    others = [
        derived.evidence[0].model_copy(update=change)
        for change in ({"row_id": 1}, {"field": "none"}, {"quote": "x" * 100_000})
    ]
    assert count_quotes([question.model_copy(update={"evidence": (*derived.evidence, *others)})], databases) == (
        1,
        1,
    )


@pytest.mark.parametrize("key", ["id INTEGER PRIMARY KEY, ", ""])
@pytest.mark.parametrize(
    ("question", "prose", "quotes"),
    [
        ("What causes gout?", "Gout is Uric acid crystals. Purines matter.", ["uric acid crystals", "purines"]),
        ("Is gout a matter of purines?", "Yes, purines and uric acid crystals. Avoid beer.", ["uric acid crystals"]),
        ("What causes mumps?", "A virus. It is the mumps virus.", []),
        ("What causes it?", "Purines. And uric acid crystals.", []),
        ("What causes gout?", "After 15 years purines matter. So they do.", ["purines"]),
    ],
)  # fmt: skip
def test_plain_prose_is_matched_to_the_items_of_the_row_that_the_question_names(
    tmp_path: Path, key: str, question: str, prose: str, quotes: list[str]
) -> None:
    with closing(sqlite3.connect(tmp_path / "a.db")) as connection:
        connection.executescript(
            f"CREATE TABLE disease ({key}disease_name TEXT, cause TEXT, treatment TEXT);"
            "INSERT INTO disease (disease_name, cause, treatment) VALUES"
            "('gout', 'uric acid crystals; purines; 5 years', 'colchicine; diet'), ('ague', 'a parasite', 'quinine')"
        )
    required = RequiredSchema(None, "make it", {"disease": Naming("disease_name")})
    with DatabasePool(lambda _: open_database(tmp_path / "a.db", required)) as pool:
        (derived,) = with_derived_evidence([Question(id="1", question=question, answer=prose)], pool, TASK.words)
    assert [(e.table, e.row_id, e.field, e.quote) for e in derived.evidence] == [
        ("disease", 1, "cause", quote) for quote in quotes
    ]


def test_no_database_is_asked_for_the_evidence_of_a_refusal() -> None:
    refusal = Question(id="1", question="?", answer=TASK.words["en"].refusals[0], sql="SELECT cause FROM disease")
    with DatabasePool(lambda _: pytest.fail("the database was opened")) as pool:
        assert with_derived_evidence([refusal], pool, TASK.words) == [refusal]
