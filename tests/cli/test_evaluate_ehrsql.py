"""A model on questions of which some have no answer: the shared task's scores, votes, and a file of predictions."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from sql_agent.cli.evaluate import main
from tests.support.hospital import write_ehrsql_folder
from tests.support.judge_server import serving

# Right for one of three answerable questions, and for the unanswerable ones wrong.
REPLY = "```sql\nSELECT gender FROM patients WHERE subject_id = 10001\n```"


def evaluate(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, reply: str, *arguments: str) -> dict[str, Any]:
    data = write_ehrsql_folder(tmp_path / "data")
    with serving() as model:
        model.default = reply
        monkeypatch.setenv("OPENAI_API_BASE", f"{model.url}/v1")
        main(["m", "--task=ehrsql", f"--data-dir={data}", f"runs_dir={tmp_path / 'runs'}", "--concurrency=2",
              f"local.cache_dir={tmp_path}", f"--predictions={tmp_path / 'p.json'}", *arguments])  # fmt: skip
    (folder,) = (tmp_path / "runs").iterdir()
    (evaluation,) = json.loads((folder / "evaluation.json").read_text(encoding="utf-8"))["evaluations"]
    return {name: of["all"]["figures"] for name, of in evaluation["sets"].items()} | {"about": evaluation}


def test_what_answers_everything_loses_by_what_it_does_not_know(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    figures = evaluate(tmp_path, monkeypatch, REPLY)["test"]
    assert [figures[f"rs_{c}"]["value"] for c in ("0", "5", "10", "n")] == [20.0, -380.0, -780.0, -380.0]
    assert figures["accurate_answerable"]["value"] == pytest.approx(1 / 3)
    assert figures["right_refusals"]["value"] == 0.0 and "refusal_precision" not in figures
    assert "RS(10)" in capsys.readouterr().out
    predictions = json.loads((tmp_path / "p.json").read_text(encoding="utf-8"))
    sql = "SELECT gender FROM patients WHERE subject_id = 10001"
    assert predictions == {"v0": sql, "v1": sql, "v2": sql, "v3": sql, "v4": sql}


def test_samples_vote_and_the_predictions_are_those_of_the_vote(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    found = evaluate(tmp_path, monkeypatch, "```\nNull\n```", "--samples=2", "--refuse-below=0.6")
    assert list(found) == ["test", "test, vote", "test, vote of 60% or null", "about"]
    assert found["test"]["right_refusals"]["count"] == 4 and found["test, vote"]["right_refusals"]["count"] == 2
    assert found["test, vote of 60% or null"]["rs_10"]["value"] == 40.0
    assert found["about"]["refuse_below"] == {"test": 0.6}
    assert set(json.loads((tmp_path / "p.json").read_text(encoding="utf-8")).values()) == {"null"}
    with pytest.raises(SystemExit):
        main(["m", "--task=ehrsql", "--refuse-below=0.6"])
    assert "--refuse-below needs --samples" in capsys.readouterr().err
