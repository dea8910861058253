"""The script prints how the rewards of a run, or the scores of a file, are spread."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from sql_agent.rollouts.trajectory import FinishedRollout
from sql_agent.runs.run_log import RunLog
from sql_agent.schemas import Drop, DropCause, Outcome, Question, RewardParts, RolloutRecord

SCRIPT = Path(__file__).resolve().parents[2] / "utils" / "reward_scale.py"


def finished(judged: float | None) -> FinishedRollout:
    """A rollout that queried and earned `judged`; None is one that its judge dropped."""
    dropped = Drop(cause=DropCause.JUDGE, detail="time-out") if judged is None else None
    reward = None if judged is None else RewardParts(rule=0.1, judge=judged, judge_name="llm")
    question = Question(id="a", question="对乙酰氨基酚用于什么？", answer="发热", lang="zh")
    record = RolloutRecord(question=question, answer="发热", outcome=Outcome.ANSWERED, reward=reward, dropped=dropped)
    return FinishedRollout(f"a-{judged}", "a", record, reward.total if reward else None, (), (), dropped)


def run(*arguments: str | Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, SCRIPT, *arguments], capture_output=True, text=True, timeout=60, check=False)


def test_a_run_and_a_file_show_their_histogram(tmp_path: Path) -> None:
    log = RunLog(tmp_path)
    log.rollouts(0, "val", [finished(1.0)])
    log.rollouts(1, "train", [finished(score) for score in (0.5, 0.5, 1.0, None)])
    lines = run(tmp_path).stdout.splitlines()
    assert lines[6].split() == ["0.6", "2", "█" * 50]
    assert lines[11].split()[:2] == ["1.1", "1"] and lines[12] == "3 rewards, mean 0.767; 2 lines without one"
    (tmp_path / "gradings.jsonl").write_text('{"score": 0.25}\n{"score": null, "error": "time-out"}\n')
    assert "1 rewards, mean 0.250; 1 lines without one" in run(tmp_path / "gradings.jsonl").stdout


def test_a_file_without_rewards_is_refused_with_exit_code_2(tmp_path: Path) -> None:
    (tmp_path / "x.jsonl").write_text("prose\n")
    for path in (tmp_path / "x.jsonl", tmp_path / "missing.jsonl"):
        done = run(path)
        assert done.returncode == 2 and "cannot read rewards from" in done.stderr and "Traceback" not in done.stderr
