"""Find the validation question that a run's training helped most."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from sql_agent.errors import DataError
from sql_agent.runs.run_lines import run_lines
from sql_agent.schemas import Question


@dataclass(frozen=True)
class Gain:
    """Holds a question, its rewards (0–1.1) in the first and the last validation, and the steps of the two."""

    question: Question
    first: float
    last: float
    first_step: int
    last_step: int
    questions: int  # that both validations graded


def largest_gain(run: Path) -> Gain:
    """Return the question whose reward rose most between the first and the last validation of `run`.

    Of equal gains it takes the one with the highest last reward. Raises DataError when `run` holds no two validations
    that graded the same question.
    """
    path = run / "rollouts.jsonl"
    questions: dict[str, Question] = {}
    rewards: dict[int, dict[str, float]] = {}  # step → id of the question → reward
    for line in _lines(path):
        if line["mode"] == "val" and line["record"] and (parts := line["record"]["reward"]):
            question = Question.model_validate(line["record"]["question"])
            questions[question.id] = question
            rewards.setdefault(line["step"], {})[question.id] = parts["rule"] + parts["judge"]
    first_step, last_step = min(rewards, default=0), max(rewards, default=0)
    first, last = rewards.get(first_step, {}), rewards.get(last_step, {})
    both = [key for key in last if key in first]
    if first_step == last_step or not both:
        raise DataError(
            f"{path} does not hold two validations that graded the same question",
            hint="let the run end, or give a question of your own",
        )
    best = max(both, key=lambda key: (last[key] - first[key], last[key]))
    return Gain(questions[best], first[best], last[best], first_step, last_step, len(both))


def _lines(path: Path) -> Iterator[dict[str, Any]]:
    """Read the objects of a JSONL file, without a last line that was cut off when the process was killed."""
    if not path.exists():
        raise DataError(f"{path} is missing", hint="name the folder of a run that validated, such as runs/quickstart")
    return run_lines(path)
