"""The files in a run's folder, and how to read them.

| file | writer | readers |
| --- | --- | --- |
| config.json | `RunLog`: the settings, once at the start | `settings_of_run`, `settings_to_resume`, the report |
| run.json | `recorded_session`: start, versions, inputs, end | `read_sessions`: the report, `--resume` |
| metrics.jsonl | `RunLog.metrics`: one line a training step | `run_lines`: the report, the summary after training |
| validation.jsonl | `RunLog.validation`: one line a validation | the same |
| rollouts.jsonl | `RunLog.rollouts`: one line a rollout | the report, `largest_gain` for `ask --run` |
| sft.jsonl | supervised fine-tuning: one line a step, with its loss | the report |
| prompt.txt, tool.json | `RunLog.prompt`: the system prompt and the tool's schema | the report, `export` |
| checkpoints/ | the backend, with the folder names in `find_checkpoints.py` | `--resume`, `ask`, `evaluate`, `export` |
| tracking/ | trackers that write files | programs of the trackers |
| report.html, comparison.html | `write_report` | browsers |

`cut_to_checkpoint` removes the lines after the last checkpoint from metrics, validation and rollouts when a run is
resumed. A lock file `.NAME.lock` next to the folder excludes a second process.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from sql_agent.config.settings import Settings, Source, flatten, merge, read_sources
from sql_agent.errors import DataError
from sql_agent.schemas import Question
from sql_agent.system.files import GrowingFile, json_object, read_object

CONFIG, INFO = "config.json", "run.json"
METRICS, VALIDATION, ROLLOUTS, SFT = "metrics.jsonl", "validation.jsonl", "rollouts.jsonl", "sft.jsonl"
UNTRAINED = -1  # the step of a validation before supervised fine-tuning; 0 is before GRPO
PROMPT, TOOL = "prompt.txt", "tool.json"
JsonObject = dict[str, Any]

_RUN_KEYS = {"task", "runs_dir"}  # in the config.json of a run, not in that of a model


def settings_of_run(run: Path, overrides: Sequence[str], flags: Mapping[str, Any]) -> Settings:
    """Return the settings of `run`, overridden by the command line: `overrides`, and `flags` except `model`."""
    *weaker, command_line = read_sources(overrides, flags={k: v for k, v in flags.items() if k != "model"})
    return merge([*weaker, run_source(run), command_line])


def run_source(run: Path) -> Source:
    return Source(
        str(run / CONFIG),
        flatten(read_config(run)),
        hint="another version of this program wrote the file: use the version in run.json, or remove the "
        "setting from the file",
        trusted=False,
    )


def model_of(config: Mapping[str, Any]) -> str:
    return config.get("model") or "embedded SmolLM2-135M-Instruct"


def is_run(folder: Path) -> bool:
    try:
        read_config(folder)
    except DataError:
        return False
    return True


def read_config(run: Path) -> dict[str, Any]:
    path = run / CONFIG
    if path.is_file():
        values = read_object(path, hint="restore the file from a copy, or start a new run under another run_name")
        if values.keys() >= _RUN_KEYS:
            return values
    raise DataError(f"there is no run in {run}", hint="name a folder under runs/, such as runs/quickstart")


def run_lines(path: Path) -> Iterator[JsonObject]:
    """Yield the objects in the JSONL file `path`, if it exists, without a last line that was cut off."""
    yield from GrowingLines(path).new()


class GrowingLines:
    """Reads a JSONL file to which another process appends lines; the file may be missing at first."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._file = GrowingFile(path)
        self._read = 0  # number of lines that were read

    def new(self) -> Iterator[JsonObject]:
        """Yield the objects in the lines that were appended since the last call, without an incomplete last line.

        If the caller raises an error at a line, the next call yields the same line again.
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
        return self._file.was_cut


@dataclass(frozen=True)
class LargestGain:
    """A validation question and its rewards (0–1.1) in two steps; `questions` is the number that both steps graded."""

    question: Question
    first: float
    last: float
    first_step: int
    last_step: int
    questions: int


def largest_gain(run: Path) -> LargestGain:
    """Return the question whose reward rose most between the first and the last validation of `run`.

    Among equal gains the highest last reward wins.
    """
    path = run / ROLLOUTS
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
