"""A database on a MySQL or MariaDB server is described and asked about like a file."""

from __future__ import annotations

from pathlib import Path

from sql_agent.database import parse_source
from sql_agent.questions.question_files import load_questions
from sql_agent.tasks.described.described_task import described_task
from sql_agent.tasks.described.description import as_toml
from sql_agent.tasks.described.generate import make_question_files
from sql_agent.tasks.described.guess_description import guess_description
from sql_agent.tasks.described.table_rows import read_database
from tests.support.mariadb import empty_database, execute

_TABLES = (
    "CREATE TABLE maker (maker_no INT PRIMARY KEY, name VARCHAR(40) COMMENT 'company name', founded DATE)",
    "CREATE TABLE `group` (group_no INT PRIMARY KEY, title VARCHAR(40), price DECIMAL(8,2) COMMENT 'list price', "
    "maker_no INT, FOREIGN KEY (maker_no) REFERENCES maker (maker_no))",
)


def test_keys_comments_decimals_and_dates_of_a_server_are_read(tmp_path: Path) -> None:
    with empty_database() as url:
        for statement in _TABLES:
            execute(url, statement)
        makers = ", ".join(f"({n}, 'Maker {chr(64 + n)}', '20{n:02}-03-01')" for n in range(1, 21))
        groups = ", ".join(f"({n}, 'Thing {n}', {n}.50, {n % 20 + 1})" for n in range(100, 160))
        execute(url, f"INSERT INTO maker VALUES {makers}")
        execute(url, f"INSERT INTO `group` VALUES {groups}")
        source = parse_source(url)
        found = guess_description(read_database(source), None, None, lambda _text: None)
        assert (found.database, found.tables["group"].columns["price"].label) == (None, "list price")
        assert [(link.source, link.target) for link in found.links] == [(("group", "maker_no"), ("maker", "maker_no"))]
        file = tmp_path / "made.toml"
        file.write_text(as_toml(found), encoding="utf-8")
        assert "root" not in file.read_text(encoding="utf-8")
        made = make_question_files(found, source, described_task(file), tmp_path / "made", per_type=5)
    questions = load_questions(tmp_path / "made" / "train.parquet")
    assert {question.id for question in questions} == {question.id for question in made["train"]}
    prices = [q for q in questions if q.task_type == "lookup" and "list price" in q.question]
    assert prices and all(q.evidence[0].row_id >= 100 and q.answer == q.evidence[0].quote for q in prices)
    assert {"lookup", "linked", "superlative", "range"} <= {question.task_type for question in questions}
