"""Read the JSONL files of a run, in which each line has a step."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from sql_agent.errors import DataError
from sql_agent.runs.run_folder import ROLLOUTS
from sql_agent.schemas import Question
from sql_agent.system.files import GrowingFile, json_object

JsonObject = dict[str, Any]


def run_lines(path: Path) -> Iterator[JsonObject]:
    """Yield the objects in the JSONL file `path`; none if the file is missing.

    A last line without a line break is skipped, because the writing process was killed. Raises DataError that names a
    damaged line.
    """
    yield from GrowingLines(path).new()


class GrowingLines:
    """Reads a JSONL file to which another process appends lines; the file may be missing at first."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._file = GrowingFile(path)
        self._read = 0  # number of lines that were read

    def new(self) -> Iterator[JsonObject]:
        """Yield the objects in the lines that were appended since the last call, without an incomplete last line.

        Raises DataError that names a damaged line, at each call until the file is repaired. If the caller raises an
        error at a line, the next call yields the same line again.
        """
        for line in self._file.new():
            try:
                parsed = json_object(line)
            except ValueError as error:
                raise self.damaged(str(error)) from None
            if not isinstance(parsed.get("step"), int):
                raise self.damaged('the number "step" is missing')
            yield parsed
            self._read += 1

    def damaged(self, problem: str) -> DataError:
        """Return the error for the line that was yielded last; the hint is a command that removes the line."""
        number = self._read + 1
        hint = f"remove that line, for example by sed -i '{number}d' {self._path}"
        return DataError(f"{self._path} is damaged: line {number}: {problem}", hint=hint)

    @property
    def was_cut(self) -> bool:
        """Whether the file became shorter, for example because the run was resumed."""
        return self._file.was_cut


@dataclass(frozen=True)
class LargestGain:
    """The validation question with the largest gain in reward between the first and the last validation.

    `first` and `last` are the rewards (0–1.1). `questions` is the number of questions graded in both validations.
    """

    question: Question
    first: float
    last: float
    first_step: int
    last_step: int
    questions: int


def largest_gain(run: Path) -> LargestGain:
    """Return the question whose reward rose most between the first and the last validation of `run`.

    Among equal gains the highest last reward wins. Raises DataError unless two validations graded the same question.
    """
    path = run / ROLLOUTS
    if not path.exists():
        raise DataError(f"{path} is missing", hint="name the folder of a run with validations, such as runs/quickstart")
    questions: dict[str, Question] = {}
    rewards: dict[int, dict[str, float]] = {}  # {step: {question id: reward}}
    for line in run_lines(path):
        if line["mode"] == "val" and line["record"] and (parts := line["record"]["reward"]):
            question = Question.model_validate(line["record"]["question"])
            questions[question.id] = question
            rewards.setdefault(line["step"], {})[question.id] = parts["rule"] + parts["judge"]
    first_step, last_step = min(rewards, default=0), max(rewards, default=0)
    first, last = rewards.get(first_step, {}), rewards.get(last_step, {})
    both = [key for key in last if key in first]
    if first_step == last_step or not both:
        raise DataError(
            f"{path} has no two validations that graded the same question",
            hint="let the run finish, or give a question of your own",
        )
    best = max(both, key=lambda key: (last[key] - first[key], last[key]))
    return LargestGain(questions[best], first[best], last[best], first_step, last_step, len(both))
