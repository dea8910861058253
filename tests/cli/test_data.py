"""The commands build the sample database, and questions about any."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from sql_agent.cli.command import database, exits_cleanly
from sql_agent.cli.data import main
from sql_agent.database import open_database
from sql_agent.questions.question_files import load_questions
from sql_agent.tasks.described.splits import SHARES
from sql_agent.tasks.medical.sample import build_database, load_facts
from sql_agent.tasks.medical.tables import SCHEMA
from tests.support.processes import MAIN, run_command


@pytest.mark.slow
def test_the_same_database_gives_the_same_files_and_the_jsonl_file_holds_all_splits(tmp_path: Path) -> None:
    build_database(load_facts(), "en", tmp_path / "sample.db")
    command = ["data", "questions", f"--db={tmp_path / 'sample.db'}", "--per-type=5"]
    one, two, other = (tmp_path / name for name in ("one", "two", "other"))
    assert main([*command[1:], f"--out={one}"]) == main([*command[1:], f"--out={other}", "--seed=1"]) == 0
    # In another process a set of texts has another order.
    again = run_command(sys.executable, MAIN, *command, f"--out={two}", PYTHONHASHSEED="7")
    assert again.returncode == 0, again.stderr
    names = sorted(path.name for path in one.iterdir())
    assert names == ["qa_dataset.jsonl", "test.parquet", "train.parquet", "val.parquet"]
    assert all((one / name).read_bytes() == (two / name).read_bytes() for name in names)
    parts = [question for split in SHARES for question in load_questions(one / f"{split}.parquet")]
    assert load_questions(one / "qa_dataset.jsonl") == parts != load_questions(other / "qa_dataset.jsonl")


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
