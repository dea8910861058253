"""A model behind an endpoint is measured on databases in Spider's layout, and its statements are written down."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from sql_agent.cli.evaluate import main
from sql_agent.errors import ConfigError
from tests.support.judge_server import serving
from tests.support.orchard import QUESTIONS, write_spider_folder

TREES = "```sql\nSELECT count(*) -- not 'all\nFROM tree\n\tWHERE kind <> 'a  -- b';\n```"


def evaluate(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *arguments: str, reply: str = TREES) -> None:
    with serving() as model:
        model.default = reply
        monkeypatch.setenv("OPENAI_API_BASE", f"{model.url}/v1")
        main(["m", f"runs_dir={tmp_path / 'runs'}", f"local.cache_dir={tmp_path}", "--concurrency=2", *arguments])


def test_accuracy_is_told_by_hardness_and_by_database_and_predictions_keep_the_order(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    data = write_spider_folder(tmp_path / "data")
    out = tmp_path / "predictions.sql"
    evaluate(
        tmp_path, monkeypatch, "--task=spider", f"--data-dir={data}", "--workflow=check-rewrite",
        f"--questions={data / 'train_spider.json'}", f"--predictions={out}", "spider.val_databases=1",
    )  # fmt: skip
    (folder,) = (tmp_path / "runs").iterdir()
    measured = json.loads((folder / "evaluation.json").read_text(encoding="utf-8"))
    result = measured["evaluations"][0]["sets"]["train_spider"]
    accurate = {name: group["figures"]["accurate"]["value"] for name, group in result["by_database"].items()}
    assert accurate == {"orchard": pytest.approx(1 / 6), "ferries": 0.0}, "only the first question asks for that"
    assert {name: group["questions"] for name, group in result["by_task_type"].items()} == {
        "easy": 6, "medium": 2, "hard": 2,
    }  # fmt: skip
    overall = result["all"]["figures"]["accurate"]
    assert overall["value"] == pytest.approx(0.1) and overall["low"] < 0.1 < overall["high"]
    shown = capsys.readouterr().out
    assert "accurate: ferries" in shown and "accurate: easy" in shown
    lines = out.read_text(encoding="utf-8").splitlines()
    sql = "SELECT count(*)   FROM tree WHERE kind <> 'a  -- b'"
    assert lines == [f"{sql}\t{database}" for database, _, _ in QUESTIONS], "a comment would hide what follows it"


def test_a_model_without_a_statement_has_its_line_all_the_same(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    data = write_spider_folder(tmp_path / "data")
    out = tmp_path / "predictions.sql"
    evaluate(
        tmp_path, monkeypatch, "--task=spider", f"--data-dir={data}", f"--questions={data / 'train_spider.json'}",
        f"--predictions={out}", "-n", "2", "spider.val_databases=1", reply="```sql\n\n```",
    )  # fmt: skip
    assert len(out.read_text(encoding="utf-8").splitlines()) == 2


@pytest.mark.parametrize(
    ("task", "out", "said"),
    [
        ("tests.support.library:TASK", "out.sql", "answers of the task library are not SQL statements"),
        ("spider", "nowhere/out.sql", "a folder that does not exist"),
    ],
)
def test_predictions_that_cannot_be_written_are_refused_before_anything_is_asked(
    task: str, out: str, said: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    data = write_spider_folder(tmp_path / "data")
    with pytest.raises(ConfigError, match=said):
        evaluate(
            tmp_path, monkeypatch, f"--task={task}", f"--data-dir={data}", f"--predictions={tmp_path / out}",
            f"--questions={data / 'train_spider.json'}", "spider.val_databases=1",
        )  # fmt: skip
    assert not (tmp_path / "runs").exists()
