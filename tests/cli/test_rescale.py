"""The command says what a scale does to the groups of a run, and writes one."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from sql_agent.cli.exit_codes import exits_cleanly
from sql_agent.cli.rescale import main
from sql_agent.reward.judges.rescaling import Scale
from sql_agent.rollouts.rollouts import FinishedRollout
from sql_agent.runs.run_log import RunLog
from sql_agent.schemas import Drop, DropCause, Outcome, Question, RewardParts, RolloutRecord

SCRIPT = Path(__file__).resolve().parents[2] / "utils" / "reward_scale.py"


def finished(question: str, judged: float | None, *, unscaled: float | None = None) -> FinishedRollout:
    """A rollout that queried and earned `judged`; None is one that its judge dropped."""
    criteria = {} if unscaled is None else {"unscaled": unscaled}
    record = RolloutRecord(
        question=Question(id=question, question="对乙酰氨基酚用于什么？", answer="发热", lang="zh"),
        answer="发热",
        outcome=Outcome.ANSWERED,
        reward=None if judged is None else RewardParts(rule=0.1, judge=judged, judge_name="llm", criteria=criteria),
        dropped=Drop(cause=DropCause.JUDGE, detail="time-out") if judged is None else None,
    )
    reward = record.reward.total if record.reward else None
    return FinishedRollout(f"{question}-{judged}", question, record, reward, (), (), record.dropped)


@pytest.fixture
def run(tmp_path: Path) -> Path:
    """Eight training scores, 0.5 twice and 0.6 six times, in three groups of which one has variance."""
    log = RunLog(tmp_path / "runs" / "night")
    log.folder.mkdir(parents=True)
    log.rollouts(0, "val", [finished("a", 1.0), finished("b", 0.0)])
    log.rollouts(1, "train", [*(finished("a", score) for score in (0.5, 0.6, 0.5, 0.6)), finished("a", None)])
    log.rollouts(1, "train", [finished("b", 0.6), finished("b", 0.6)])
    log.rollouts(2, "train", [finished("a", 0.6), finished("a", 0.6)])
    return log.folder


def command(*arguments: str | Path) -> int:
    return exits_cleanly(main, [str(argument) for argument in arguments])


def rows(output: str) -> dict[str, list[str]]:
    """The rows of all tables in `output`: the first cell and the others."""
    cells = [[cell.strip() for cell in line.strip("│").split("│")] for line in output.splitlines() if "│" in line]
    return {first: rest for first, *rest in cells}


def test_what_a_run_shows(run: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert command(run, "--bins", "10") == 0
    output = capsys.readouterr().out
    assert "Scores: 8; left out: 2 of validation, 1 dropped." in output
    table = rows(output)
    assert table["0.50 to 0.60"][0] == "2"
    assert table["0.60 to 0.70"][0] == "6"
    assert table["0.60 to 0.70"][1] == "█" * 40
    assert table["0.90 to 1.00"] == ["0", ""]
    # F(0.5) = 1/8 and F(0.6) = 5/8, so at strength 0.5 they become 0.3125 and 0.6125.
    assert table["0 %"] == ["0.500", "0.312"]
    assert table["50 %"] == table["100 %"] == ["0.600", "0.613"]
    assert "Exactly 0: 0.0%; exactly 1: 0.0%; distinct values: 2." in output
    assert table["mean reward (judge + rule)"] == ["0.6750", "0.6375"]
    assert table["mean variance of the scores in a group"] == ["0.000833", "0.007500"]
    assert table["mean standard deviation"] == ["0.016667", "0.050000"]
    assert "Groups without variance: 2 of 3 (66.7%)." in output
    assert "no scale can change them" in output
    assert "Nothing was written" in output
    assert [path.name for path in run.iterdir()] == ["rollouts.jsonl"]


def test_as_a_script_from_another_folder_it_leaves_a_scale(run: Path, tmp_path: Path) -> None:
    folder = tmp_path / "elsewhere"
    folder.mkdir()
    result = subprocess.run(
        [sys.executable, str(SCRIPT), str(run / "rollouts.jsonl"), "--strength", "1", "--out", "scale.json"],
        cwd=folder, env=os.environ | {"PYTHONPATH": ""}, check=False, capture_output=True, text=True, timeout=60,
    )  # fmt: skip
    assert result.returncode == 0, result.stderr
    assert "Wrote scale.json: 4 knots." in result.stdout
    written = json.loads((folder / "scale.json").read_text(encoding="utf-8"))
    assert set(written) == {"knots", "source", "scores", "strength", "date"}
    assert written["knots"] == [[0.0, 0.0], [0.5, 0.125], [0.6, 0.625], [1.0, 1.0]]
    assert (written["source"], written["scores"], written["strength"]) == (["rollouts.jsonl"], 8, 1.0)
    assert Scale.load(folder / "scale.json").apply(0.55) == pytest.approx(0.375)


def test_a_run_that_was_scaled_is_read_by_its_scores_before(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    RunLog(tmp_path).rollouts(1, "train", [finished("a", 0.1, unscaled=0.7), finished("a", 0.9, unscaled=0.8)])
    assert command(tmp_path) == 0
    output = capsys.readouterr().out
    assert "2 were rescaled already" in output
    assert rows(output)["0 %"][0] == "0.700"


def test_a_run_that_was_killed_while_writing_is_still_read(run: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = run / "rollouts.jsonl"
    whole = path.read_bytes()
    last = whole.splitlines()[-1]
    path.write_bytes(whole + last[: last.index("热".encode()) + 1])  # in the middle of a character
    assert command(run) == 0
    assert "1 cut off at the end of the file" in capsys.readouterr().out


def test_gradings_without_a_score_are_counted_and_scaled_ones_read_as_before(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "gradings.jsonl"
    path.write_text(
        '{"question_id": "a", "score": 0.9, "criteria": {"unscaled": 0.8}}\n{"question_id": "a", "error": "time-out"}\n'
    )
    assert command(path) == 0
    output = capsys.readouterr().out
    assert "Scores: 1; left out: 1 that the judge failed on." in output
    assert rows(output)["100 %"][0] == "0.800"


def test_plain_scores_and_gradings(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    plain, gradings = tmp_path / "plain.jsonl", tmp_path / "gradings.jsonl"
    plain.write_text('{"score": 0}\n\n{"score": 1, "group": "a"}\n{"score": 0.25, "group": "a"}')
    gradings.write_text('{"score": 0.5, "question_id": "a", "label": 0.4}\n{"score": 0.5, "question_id": "b"}\n')
    assert command(plain, gradings) == 0
    output = capsys.readouterr().out
    assert "Scores: 5; left out: none." in output
    assert "Exactly 0: 20.0%; exactly 1: 20.0%; distinct values: 4." in output
    assert "Groups without variance: 0 of 1 (0.0%)." in output
    assert "Scores without another one in their group: 3" in output
    assert command(gradings) == 0
    assert "the effect within groups is unknown" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("", "no score in"),
        ('{"score": 0.5}\nnot json', "line 2: not JSON"),
        ('{"score": 0.5', "line 1: not JSON"),
        ("[0.5]", "line 1: not an object"),
        ('{"reward": 0.5}', "line 1: score: Field required"),
        ('{"score": null}', "line 1: score"),
        ('{"score": 1.1}', "line 1: score"),
        ('{"score": NaN}', "line 1: score"),
        ('{"score": "0.5"}', "line 1: score"),
        ('{"rollout_id": "r", "step": 1}', "line 1: mode"),
        (
            '{"rollout_id": "r", "step": 1, "mode": "train", "group": "q", "dropped": {"cause": "judge"}, '
            '"record": null}',
            "1 × dropped",
        ),
    ],
)
def test_a_source_that_is_no_use_is_named_with_its_line(
    text: str, problem: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "scores.jsonl"
    path.write_text(text)
    assert command(path, "--out", tmp_path / "scale.json") == 2
    message = capsys.readouterr().err
    assert str(path) in message
    assert problem in message
    assert not (tmp_path / "scale.json").exists()


def test_wrong_arguments_are_refused_and_the_source_is_kept(run: Path, capsys: pytest.CaptureFixture[str]) -> None:
    source = run / "rollouts.jsonl"
    before = source.read_bytes()
    for arguments, problem in (
        ([run, "--bins", "0"], "--bins is 0"),
        ([run, "--strength", "nan"], "strength is nan"),
        ([run, source], "given 2 times"),
        ([run, "--out", source], "would overwrite"),
        ([run, "--out", run], "cannot write"),
        ([run.parent], "cannot read"),
    ):
        assert command(*arguments) == 2
        assert problem in capsys.readouterr().err
    assert source.read_bytes() == before
