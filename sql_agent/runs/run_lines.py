"""Read the JSONL files of a run, in which each line names its step, and cut them back to a step."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from sql_agent.errors import DataError
from sql_agent.runs.run_folder import ROLLOUTS
from sql_agent.schemas import Question
from sql_agent.system.files import GrowingFile, atomic_write, damaged_line, parse_line

JsonObject = dict[str, Any]


def run_lines(path: Path) -> Iterator[JsonObject]:
    """Yield the lines of `path`; no line if the file is missing.

    A last line without a line break is skipped: the process was killed while it wrote that line. Raises DataError that
    names a damaged line.
    """
    yield from GrowingLines(path).new()


class GrowingLines:
    """Reads the lines of a file while another process appends to it; an unfinished last line is read later."""

    def __init__(self, path: Path) -> None:
        """Read `path`, which need not exist yet."""
        self._path = path
        self._file = GrowingFile(path)
        self._read = 0  # lines

    def new(self) -> Iterator[JsonObject]:
        """Yield the lines that were appended since the last call; no line while the file does not exist.

        Raises DataError that names a damaged line, again in each later call until the file is repaired. If the caller
        raises an error at a line, the next call yields the same line again.
        """
        for line in self._file.new():
            yield _parsed(line, self._path, self._read + 1)
            self._read += 1

    def damaged(self, problem: str) -> DataError:
        """Return the error to raise for the line that was yielded last."""
        return damaged_line(self._path, self._read + 1, problem)

    @property
    def was_cut(self) -> bool:
        """Whether the file is shorter than what was read of it: a resumed run removes the steps that it repeats."""
        return self._file.was_cut


@dataclass(frozen=True)
class CutFile:
    """The result of `cut_after`.

    `last_step` is the last step that is left in the file (0 if none), `removed` the number of complete lines that were
    removed, and `was_cut` whether the last line was incomplete.
    """

    last_step: int
    removed: int
    was_cut: bool


def cut_after(path: Path, step: int) -> CutFile:
    """Remove the lines of all steps after `step`, and an incomplete last line, from a JSONL file if it exists.

    Raises DataError that names a damaged line; the file is then unchanged.
    """
    lines = []
    if path.exists():
        with path.open("rb") as source:
            lines = list(source)
    was_cut = bool(lines) and not lines[-1].endswith(b"\n")
    whole = lines[:-1] if was_cut else lines
    steps = [_parsed(line, path, number)["step"] for number, line in enumerate(whole, 1)]
    kept = [line for line, of_line in zip(whole, steps, strict=True) if of_line <= step]
    if len(kept) < len(lines):
        with atomic_write(path) as unfinished:
            unfinished.write_bytes(b"".join(kept))
    return CutFile(max((of for of in steps if of <= step), default=0), len(whole) - len(kept), was_cut)


@dataclass(frozen=True)
class LargestGain:
    """The validation question that gained most, and its rewards (0–1.1) in the first and the last validation.

    `questions` counts the questions that both validations graded.
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
        raise DataError(f"{path} is missing", hint="give the folder of a run with validation results: runs/quickstart")
    questions: dict[str, Question] = {}
    rewards: dict[int, dict[str, float]] = {}  # step → question id → reward
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
            hint="let the run end, or give a question of your own",
        )
    best = max(both, key=lambda key: (last[key] - first[key], last[key]))
    return LargestGain(questions[best], first[best], last[best], first_step, last_step, len(both))


def _parsed(line: bytes, path: Path, number: int) -> JsonObject:
    parsed = parse_line(line, path, number)
    if not isinstance(parsed.get("step"), int):
        raise damaged_line(path, number, "it names no step")
    return parsed
