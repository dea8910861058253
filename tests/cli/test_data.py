"""The commands build the sample database, and questions about any."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from sql_agent.cli.command import database, exits_cleanly
from sql_agent.cli.data import main
from sql_agent.database import open_database
from sql_agent.questions.question_files import load_questions
from sql_agent.schemas import Lang
from sql_agent.tasks.described.splits import SHARES
from sql_agent.tasks.medical.medical_task import make_question_files
from sql_agent.tasks.medical.tables import SCHEMA
from tests.support.medical_questions import questions_folder


@pytest.mark.slow
def test_the_same_database_gives_the_same_files(tmp_path: Path, sample_of: Callable[[Lang], tuple[Path, Path]]) -> None:
    database, one = sample_of("en")
    _, two = questions_folder(tmp_path, "en", "two")
    names = sorted(path.name for path in one.iterdir())
    assert names == ["qa_dataset.jsonl", "test.parquet", "train.parquet", "val.parquet"]
    assert all((one / name).read_bytes() == (two / name).read_bytes() for name in names)
    made = [make_question_files(database, tmp_path / "few", "en", seed=seed, per_type=5) for seed in (0, 1)]
    assert made[0] != made[1]


@pytest.mark.slow
def test_the_jsonl_file_holds_all_splits(sample_of: Callable[[Lang], tuple[Path, Path]]) -> None:
    _, folder = sample_of("zh")
    parts = [question for split in SHARES for question in load_questions(folder / f"{split}.parquet")]
    assert load_questions(folder / "qa_dataset.jsonl") == parts


def test_a_missing_database_ends_with_a_message_and_code_2(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert exits_cleanly(main, ["questions", "--db", str(tmp_path / "none.db")]) == 2
    assert "no database at" in capsys.readouterr().err


def test_the_url_of_a_database_can_be_in_a_variable_so_that_no_process_shows_its_password(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("ADMIN_URL", "mysql+pymysql://root:geheim@db.example/medical")
    assert str(database("env:ADMIN_URL")) == "mysql://root@db.example:3306/medical"
    with pytest.raises(SystemExit, match="2"):
        main(["load", "--db", "env:NO_SUCH_URL"])
    assert "export NO_SUCH_URL=" in capsys.readouterr().err


def test_build_writes_where_it_is_told(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "mine.db"
    assert main(["build", "--lang", "zh", "--out", str(path)]) == 0
    assert "77 rows in drugs_info" in capsys.readouterr().out
    with open_database(path, SCHEMA) as opened:
        assert opened.query("SELECT form FROM drugs_info WHERE med_name = '二甲双胍'").count == 1
