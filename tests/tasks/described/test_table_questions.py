"""Questions about many rows: what they ask, over which joins, and that one answer is right."""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence
from contextlib import closing
from pathlib import Path

import pytest

from sql_agent.config.settings import load_settings
from sql_agent.schemas import Question
from sql_agent.tasks.described.described_task import described_task
from sql_agent.tasks.described.description import as_toml, read_description
from sql_agent.tasks.described.generate import make_question_files
from sql_agent.tasks.described.guess_description import guess_description
from sql_agent.tasks.described.statement import COUNT, Comparison, Join, Output, Statement
from sql_agent.tasks.described.table_rows import read_database
from tests.tasks.described.conftest import Described

_DORMS = """
CREATE TABLE student (stuid INTEGER PRIMARY KEY, name TEXT, age INTEGER, sex TEXT);
CREATE TABLE dorm (dormid INTEGER PRIMARY KEY, dorm_name TEXT, capacity INTEGER);
CREATE TABLE lives_in (stuid INTEGER REFERENCES student (stuid), dormid INTEGER REFERENCES dorm (dormid));
"""
_STUDENTS = [(n, f"{first} {last}", 18 + n % 5, "FM"[n % 2]) for n, (first, last) in enumerate(
    ((first, last) for first in ("Ann", "Bob", "Cleo", "Dan") for last in ("Ames", "Bell", "Cole", "Dunn")), 1
)]  # fmt: skip
_ROOMS = [(n, 1 + n % 2) for n in range(1, 14)]  # the third dorm is empty, three students live nowhere


@pytest.fixture(scope="module")
def dorms(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, list[Question]]:
    """A database of three tables, one of which only links the others, and the questions made about it."""
    path = tmp_path_factory.mktemp("dorms") / "dorms.db"
    with closing(sqlite3.connect(path)) as connection, connection:
        connection.executescript(_DORMS)
        connection.executemany("INSERT INTO student VALUES (?, ?, ?, ?)", _STUDENTS)
        connection.executemany("INSERT INTO dorm VALUES (?, ?, ?)", [(1, "Smith Hall", 80), (2, "Fawlty Towers", 320),
                                                                     (3, "Bud Jones Hall", 116)])  # fmt: skip
        connection.executemany("INSERT INTO lives_in VALUES (?, ?)", _ROOMS)
    file = path.with_suffix(".toml")
    file.write_text(as_toml(guess_description(read_database(path), path.name, None, lambda _: None)), encoding="utf-8")
    task = described_task(file)
    description, folder = read_description(file), path.parent / "made"
    made = make_question_files(description, path, task, folder, per_type=40, style="template")
    return path, [question for of_split in made.values() for question in of_split]


def _of(questions: Sequence[Question], task_type: str, *words: str) -> list[Question]:
    return [q for q in questions if q.task_type == task_type and all(word in (q.sql or "") for word in words)]


def test_rows_are_linked_over_a_table_that_only_links(dorms: tuple[Path, list[Question]]) -> None:
    _, questions = dorms
    over = "JOIN lives_in ON student.stuid = lives_in.stuid JOIN dorm ON lives_in.dormid = dorm.dormid"
    assert _of(questions, "listing", over, "dorm.dorm_name = 'Smith Hall'")
    assert _of(questions, "sets", over, "EXCEPT")
    assert [q.question for q in questions if "lives in" in q.question] == []


def test_missing_links_groups_and_averages_are_right(dorms: tuple[Path, list[Question]]) -> None:
    _, questions = dorms
    homeless = {q.answer for q in _of(questions, "unlinked", "SELECT name FROM student WHERE stuid NOT IN")}
    assert homeless == {"; ".join(name for number, name, *_ in _STUDENTS if number > 13)}
    empty = {q.answer for q in _of(questions, "unlinked", "SELECT dorm_name FROM dorm WHERE dormid NOT IN")}
    assert empty == {"Bud Jones Hall"}
    counted = {q.answer for q in _of(questions, "per_group", "dorm.dorm_name, COUNT(*)", "GROUP BY dorm.dormid")}
    assert counted == {"Smith Hall: 6; Fawlty Towers: 7"}
    assert {q.answer for q in _of(questions, "groups", "SELECT dorm.dorm_name FROM", "DESC LIMIT 1")} == {
        "Fawlty Towers"
    }
    oldest = {
        q.answer for q in _of(questions, "aggregate", "SELECT MAX(age) FROM student") if "WHERE" not in (q.sql or "")
    }
    assert oldest == {"22"}


def test_an_order_with_ties_is_not_asked(dorms: tuple[Path, list[Question]]) -> None:
    """Several students are 22, so which of them is the oldest has no answer."""
    _, questions = dorms
    assert [q.question for q in _of(questions, "best", "FROM student ORDER BY age")] == []


def test_statements_over_many_rows(shop: Described) -> None:
    names = read_database(shop.path)
    mean = Statement("products", (Output("price", function="AVG"),))
    dear = Statement("products", (Output("productName"),), where=(Comparison("price", ">", mean),))
    assert dear.sql(names) == "SELECT productName FROM products WHERE price > (SELECT AVG(price) FROM products)"
    joins = (Join("order_items", "sku", "sku"), Join("order", "order_no", "order_no", of="order_items"))
    sold = Statement("products", (Output("category"), COUNT), joins=joins, group_by=Output("sku"), more_than=2)
    assert sold.sql(names) == (
        "SELECT products.category, COUNT(*) FROM products JOIN order_items ON products.sku = order_items.sku "
        "JOIN `order` ON order_items.order_no = `order`.order_no GROUP BY products.sku HAVING COUNT(*) > 2"
    )
    kinds = Statement("products", (Output("category"),), distinct=True, combined=("EXCEPT", dear))
    assert kinds.sql(names) == f"SELECT DISTINCT category FROM products EXCEPT {dear.sql(names)}"


def test_questions_about_many_rows_are_sentences(described: Described) -> None:
    types = {"listing", "aggregate", "per_group", "groups", "best", "average", "sets", "unlinked"}
    texts = [q.question for of_split in described.made.values() for q in of_split if q.task_type in types]
    assert len(texts) > 20
    assert [text for text in texts if "  " in text or "的的" in text or "None" in text or "{" in text] == []


def test_a_list_that_nobody_reads_is_not_asked(described: Described) -> None:
    with described.task.open_database(load_settings()) as database:
        for of_split in described.made.values():
            for question in (q for q in of_split if q.task_type in {"listing", "sets", "per_group"}):
                assert 0 < len(database.query(question.sql or "").records) <= 20
