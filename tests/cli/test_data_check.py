"""Questions are checked against their database: by a command, and by every run before it starts."""

from __future__ import annotations

import re
import sqlite3
import time
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from sql_agent.cli.command import exits_cleanly
from sql_agent.cli.data import main
from sql_agent.cli.train_plan import Plan, check_questions_of
from sql_agent.config.settings import Settings, load_settings
from sql_agent.errors import ConfigError
from sql_agent.questions.question_files import load_questions
from sql_agent.runs.console import Ui
from sql_agent.schemas import Question
from sql_agent.tasks.medical.medical_task import TASK
from tests.support.small_database import make_database
from tests.support.users_questions import FACTS, NUMBER, PROSE, REFUSAL, SEARCH, written

ALL = (PROSE, SEARCH, FACTS, NUMBER, REFUSAL)


@pytest.fixture
def db(tmp_path: Path) -> Path:
    return make_database(tmp_path / "medical.db")


def checked(*arguments: object) -> int:
    return exits_cleanly(main, ["check", *map(str, arguments)])


def figures(printed: str) -> dict[str, list[str]]:
    """Return the rows of the printed table: the cells by the label before them."""
    rows = [re.split(r" {2,}(?=\S)", line.strip()) for line in printed.splitlines() if "  " in line.strip()]
    return {label: cells for label, *cells in rows}


def test_a_file_is_described_with_all_that_a_run_needs_of_it(
    db: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert checked(written(tmp_path / "mine.jsonl", *ALL), "--db", db) == 0
    printed = capsys.readouterr().out
    rows = figures(printed)
    assert {label: cells for label, (cells, *_) in rows.items()} | {
        "questions": "5",
        "language zh": "1",
        "language en": "4",
        "task type what_treats": "1",
        "task type (none)": "4",
        "reference of facts": "1",
        "reference of number": "1",
        "reference of refusal": "1",
        "reference of prose": "2",
        "with evidence": "1",
        "derived from the database": "1",
        "evidence quotes found in their cell": "1 of 1",
        "with gold SQL": "5",
        "returns rows": "4",
        "returns no row": "1",
        "fails": "0",
        "refused by the guard": "0",
        "reference earns, mean of 0–1": "1.00",
        "full marks": "5 of 5",
    } == {label: cells for label, (cells, *_) in rows.items()}
    assert all(len(line) <= 80 for line in printed.splitlines())
    assert "not medical advice" in printed


def test_damaged_cells_of_the_database_are_counted_with_an_example(
    db: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with closing(sqlite3.connect(db)) as connection, connection:
        connection.execute("UPDATE drugs_info SET storage = 'cool&nbsp;&amp; dry' WHERE id IN (1, 2)")
        connection.execute("UPDATE disease SET prognosis = 'n/a' WHERE id = 1")
    assert checked(written(tmp_path / "mine.jsonl", *ALL), "--db", db) == 0
    printed = " ".join(capsys.readouterr().out.split())
    assert "HTML: 2, such as drugs_info.storage: cool&nbsp;&amp; dry" in printed
    assert "texts that mean an empty cell: 1, such as disease.prognosis: n/a" in printed


def test_what_is_wrong_is_listed_with_examples_and_ends_with_2(
    db: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    wrong = [
        FACTS | {"id": "w-1", "sql": "SELECT password FROM secrets"},
        FACTS | {"id": "w-2", "sql": "SELECT form FORM drugs_info WHERE"},
        FACTS | {"id": "w-3", "sql": "SELECT form FROM drugs_info WHERE id = 77777"},
        PROSE | {"qid": "w-4", "evidence": [PROSE["evidence"][0] | {"quote": "bed rest"}]},
    ]
    train = written(tmp_path / "train.jsonl", *wrong)
    val = written(tmp_path / "val.jsonl", PROSE)
    assert checked(train, val, "--db", db) == 2
    told = capsys.readouterr()
    rows = figures(told.out)
    assert rows["questions"] == ["4", "1"]
    assert rows["refused by the guard"] == ["1", "0"]
    assert rows["fails"] == ["1", "0"]
    assert rows["returns no row"] == ["1", "0"]
    assert rows["evidence quotes found in their cell"] == ["0 of 1", "1 of 1"]
    assert "w-1: " in told.out
    assert "Questions asked twice in a file: 1" in told.out
    assert "disease 3" in told.out, "the entity that both files ask about"
    assert "3 of 4 gold queries fail or return no row" in told.err
    assert "1 questions are in more than one file" in told.err


def test_a_mapping_file_is_taken(db: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "m.toml").write_text('id = "key"\nanswer = "gold.text"', encoding="utf-8")
    path = written(tmp_path / "q.jsonl", {"key": "1", "question": "Which form?", "gold": {"text": "syrup"}})
    assert checked(path, "--db", db) == 2
    assert "column answer" in capsys.readouterr().err
    assert checked(path, "--db", db, "--mapping", tmp_path / "m.toml") == 0


def checked_for_run(
    *rows: dict[str, Any], folder: Path, settings: Settings
) -> tuple[list[Question], dict[str, list[Question]]]:
    train = load_questions(written(folder / "train.jsonl", *rows))
    return check_questions_of(Plan(settings, TASK, train, {"template": train[:1]}, TASK.judge(settings)), Ui())


def run_settings(db: Path, *overrides: str) -> Settings:
    return load_settings([f"database.path={db}", "judge.name=facts", *overrides])


def test_a_run_says_in_one_line_that_all_is_well(db: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    train, _ = checked_for_run(*ALL, folder=tmp_path, settings=run_settings(db))
    assert "5 of 5 gold queries return rows" in capsys.readouterr().out.replace("\n", " ")
    (found,) = train[1].evidence
    assert (found.table, found.row_id, found.field, found.quote) == ("drugs_info", 9001, "med_name", "布洛芬")


def test_a_run_on_the_wrong_database_is_refused(tmp_path: Path) -> None:
    empty = make_database(tmp_path / "other.db", rows=1)
    with pytest.raises(ConfigError, match="4 of 5 gold queries fail or return no row") as refused:
        checked_for_run(PROSE, FACTS, FACTS | {"id": 9}, NUMBER, folder=tmp_path, settings=run_settings(empty))
    assert "other.db" in refused.value.message
    assert "SELECT" in refused.value.message
    assert "database.path" in (refused.value.hint or "")


def test_references_that_the_judge_does_not_pay_for_are_refused(db: Path, tmp_path: Path) -> None:
    wrong = FACTS | {"answer": "powder"}
    with pytest.raises(ConfigError, match=r"earn 0\.05 of 1\.0 from the judge facts"):
        checked_for_run(wrong, folder=tmp_path, settings=run_settings(db))


def test_a_wrong_number_is_shown_with_that_of_the_gold_sql(
    db: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert checked(written(tmp_path / "mine.jsonl", NUMBER | {"answer": "77"}), "--db", db) == 2
    printed = " ".join(capsys.readouterr().out.split())
    assert "the gold SQL returns " in printed and "the reference says '77'" in printed


def test_prose_without_evidence_names_the_judges_that_can_grade_it(db: Path, tmp_path: Path) -> None:
    plain = {key: PROSE[key] for key in ("qid", "ground_truth")} | {"question": "Which one?"}  # which names no row
    with pytest.raises(ConfigError, match="prose without evidence") as refused:
        checked_for_run(plain, folder=tmp_path, settings=run_settings(db))
    assert "judge.name=llm or reward-model" in (refused.value.hint or "")
    assert "sql-agent data facts" in (refused.value.hint or "")


def test_a_judge_behind_a_network_is_not_asked_but_its_gold_queries_are_run(
    db: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("TEACHER_MODEL", "m")
    monkeypatch.setenv("TEACHER_BASE_URL", "http://127.0.0.1:9/v1")
    settings = run_settings(db, "judge.name=llm")
    checked_for_run(PROSE, FACTS | {"answer": "powder"}, folder=tmp_path, settings=settings)
    assert "earn" not in capsys.readouterr().out
    with pytest.raises(ConfigError, match="2 of 2 gold queries"):
        checked_for_run(FACTS | {"sql": "SELECT 1 FROM disease LIMIT 0"}, folder=tmp_path, settings=settings)


def test_questions_without_sql_are_graded_by_their_own_reference(db: Path, tmp_path: Path) -> None:
    plain = {"id": "1", "question": "Which form?", "answer": "syrup; 头痛"}
    checked_for_run(plain, folder=tmp_path, settings=run_settings(db))


def test_references_that_nothing_in_the_database_was_compared_with_are_said_to_be(
    db: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    nonsense = {"id": "n-1", "question": "What treats migraine?", "answer": "purple elephants"}
    assert checked(written(tmp_path / "mine.jsonl", nonsense), "--db", db) == 0
    said = " ".join(capsys.readouterr().out.split())
    assert "Neither gold SQL nor evidence, so the reference was compared with nothing in the database: 1 n-1" in said


def test_several_statements_are_all_run(db: Path, tmp_path: Path) -> None:
    two = {"id": "1", "question": "Which forms?", "answer": "syrup; capsule",
           "sql": [f"SELECT form FROM drugs_info WHERE id = {row}" for row in (1, 2)]}  # fmt: skip
    checked_for_run(two, folder=tmp_path, settings=run_settings(db))
    with pytest.raises(ConfigError, match="2 of 2 gold queries"):
        broken = two | {"sql": [*two["sql"], "SELECT nothing FROM drugs_info"]}
        checked_for_run(broken, folder=tmp_path, settings=run_settings(db))


def test_many_questions_take_about_two_seconds(db: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    rows = [
        FACTS | {"id": number, "sql": "SELECT form FROM drugs_info WHERE med_name = 'Drug 2'"} for number in range(2000)
    ]
    start = time.monotonic()
    checked_for_run(*rows, folder=tmp_path, settings=run_settings(db))
    assert time.monotonic() - start < 6
    assert "of 2001 questions" in capsys.readouterr().out
