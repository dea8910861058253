"""The files in a run's folder, and how to read them.

| file | written by |
| --- | --- |
| config.json | `RunLog`: the settings, at each start |
| run.json | `recorded_session`: start, versions, inputs and end of each session |
| metrics.jsonl | `RunLog.metrics`: a line per training step |
| validation.jsonl | `RunLog.validation`: a line per validation |
| rollouts.jsonl | `RunLog.rollouts`: a line per rollout |
| in_hand.json | `RunLog.keep_in_hand`: the ended rollouts of an interrupted step, for `--resume` |
| sft.jsonl | `RunLog.sft`: the loss of each step of supervised fine-tuning |
| start.jsonl | `end_of_start_part`: when each part of a start on `verl` ended |
| prompt.txt, tool.json | `RunLog.prompt`: the system prompt and the tool's schema |
| checkpoints/ | the backend, with the folder names in `checkpoints.py` |
| tracking/ | the trackers that write files |
| report.html, comparison.html | `write_report` |

When a run is resumed, `cut_to_checkpoint` removes the lines after the last checkpoint. A lock file, `.NAME.lock` in the
parent folder, keeps a second process from training the run.
"""

from __future__ import annotations

import platform
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any, Literal

from pydantic import Field, ValidationError

from sql_agent.config.settings import Settings, Source, flatten, merge, read_sources
from sql_agent.config.settings_schema import AgentSettings
from sql_agent.errors import DataError, SqlAgentError
from sql_agent.schemas import Question, Record
from sql_agent.system.files import GrowingFile, json_object, read_object, write_text
from sql_agent.system.messages import first_problem

CONFIG, INFO = "config.json", "run.json"
METRICS, VALIDATION, ROLLOUTS, SFT = "metrics.jsonl", "validation.jsonl", "rollouts.jsonl", "sft.jsonl"
UNTRAINED = -1  # the step of a validation before supervised fine-tuning; step 0 is before GRPO
IN_HAND = "in_hand.json"
PROMPT, TOOL = "prompt.txt", "tool.json"
JsonObject = dict[str, Any]

_RUN_KEYS = {"task", "runs_dir"}  # keys in the config.json of every run, but of no Hugging Face model
_PACKAGES = ("sql-agent-trainer", "agentlightning", "openai-agents", "litellm", "torch", "transformers", "verl", "vllm")


def settings_of_run(run: Path, overrides: Sequence[str], flags: Mapping[str, Any]) -> Settings:
    """Return the settings of `run`, overridden by `overrides` and by `flags` other than `model`."""
    *weaker, command_line = read_sources(overrides, flags={k: v for k, v in flags.items() if k != "model"})
    return merge([*weaker, run_source(run), command_line])


def agent_of_run(run: Path) -> AgentSettings:
    """Return the agent's settings of `run`, for a caller that runs no model and opens no database."""
    return merge([replace(run_source(run), trusted=True)]).agent


def run_source(run: Path) -> Source:
    return Source(
        str(run / CONFIG),
        flatten(read_config(run)),
        hint="use the version of this program that is in run.json, or remove the setting from the file",
        trusted=False,
    )


def model_of(config: Mapping[str, Any]) -> str:
    return config.get("model") or "bundled SmolLM2-135M-Instruct"


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
    """Yield the objects in the complete lines of the JSONL file `path`; none if there is no file.

    Raises DataError for a damaged line.
    """
    return GrowingLines(path).new()


class GrowingLines:
    """Reads a JSONL file to which another process appends lines; the file may be missing at first."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._file = GrowingFile(path)
        self._read = 0  # number of lines

    def new(self) -> Iterator[JsonObject]:
        """Yield the objects in the complete lines that were appended since the last call.

        If the caller stops at a line, the next call yields that line again. Raises DataError for a damaged line.
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
        """Return the error for the line that was yielded last, with a command that removes the line as the hint."""
        number = self._read + 1
        hint = f"remove that line, for example with sed -i '{number}d' {self._path}"
        return DataError(f"{self._path} is damaged: line {number}: {problem}", hint=hint)

    @property
    def was_cut(self) -> bool:
        return self._file.was_cut


@dataclass(frozen=True)
class LargestGain:
    """A question and its rewards (0–1.1) in two validations; `questions` is the number of questions graded in both."""

    question: Question
    first: float
    last: float
    first_step: int
    last_step: int
    questions: int


def largest_gain(run: Path) -> LargestGain:
    """Return the question whose reward rose most between the first and the last validation of `run`.

    Of several such questions, return the one with the highest last reward. Raises DataError if no question was graded
    in both validations.
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
            hint="let the run finish, or give a question: sql-agent ask --run RUN QUESTION",
        )
    best = max(both, key=lambda key: (last[key] - first[key], last[key]))
    return LargestGain(questions[best], first[best], last[best], first_step, last_step, len(both))


class RunSession(Record):
    """A session of a run, from start to end; each resume adds a session.

    Times are in UTC, ISO 8601. `end` is None if the session goes on or its process was killed. `detail` is the error of
    a failed session. `commit` is None without a Git checkout. `inputs` is {name: SHA-256} with names such as "the
    database" and "the training questions".
    """

    started: str
    database: str = ""
    inputs: dict[str, str] = Field(default_factory=dict)
    commit: str | None = None
    versions: dict[str, str] = Field(default_factory=dict)
    ended: str | None = None
    end: Literal["finished", "interrupted", "failed"] | None = None
    detail: str = ""

    @property
    def seconds(self) -> float | None:
        if self.ended is None:
            return None
        return (datetime.fromisoformat(self.ended) - datetime.fromisoformat(self.started)).total_seconds()

    @property
    def started_at(self) -> str:
        """The start as text, such as "2026-11-24 18:05:11 UTC"."""
        return self.started.replace("T", " ").replace("+00:00", " UTC")


class _RunInfo(Record):
    sessions: tuple[RunSession, ...] = ()


def read_sessions(folder: Path) -> tuple[RunSession, ...]:
    """Return the sessions of the run in `folder`, the oldest first; empty if run.json is missing."""
    path = folder / INFO
    if not path.exists():
        return ()
    hint = f"remove {path}, which contains only the times and versions of the training"
    values = read_object(path, hint=hint)
    try:
        return _RunInfo.model_validate(values).sessions
    except ValidationError as error:
        raise DataError(
            f"{path} is damaged, or another version of this program wrote it: {first_problem(error)}", hint=hint
        ) from None


def how_it_ended(sessions: Sequence[RunSession]) -> str:
    if not sessions:
        return "not recorded"
    last = sessions[-1]
    if last.end is None:
        return "still running, or its process was killed"
    resumed = {0: "", 1: ", resumed once"}.get(len(sessions) - 1, f", resumed {len(sessions) - 1} times")
    return f"{last.end}{resumed}" + (f": {last.detail}" if last.detail else "")


@contextmanager
def recorded_session(folder: Path, database: str = "", inputs: Mapping[str, str] | None = None) -> Iterator[None]:
    """Record the block as a session of the run in `folder`: its start, its end and the installed versions.

    The recorded end is "interrupted" after a KeyboardInterrupt, and "failed" after another exception.
    """
    earlier = read_sessions(folder)
    session = RunSession(
        started=_now(), database=database, inputs=dict(inputs or {}), commit=_commit(), versions=installed_versions()
    )
    _write(folder, (*earlier, session))
    end, detail = "finished", ""
    try:
        yield
    except BaseException as error:
        end = "interrupted" if isinstance(error, KeyboardInterrupt) else "failed"
        if not isinstance(error, KeyboardInterrupt):
            detail = error.message if isinstance(error, SqlAgentError) else f"{type(error).__name__}: {error}"
        raise
    finally:
        ended = session.model_copy(update={"ended": _now(), "end": end, "detail": detail})
        try:
            _write(folder, (*earlier, ended))
        except OSError:
            if end == "finished":  # otherwise the error of the block is raised, such as a full disk
                raise


def _write(folder: Path, sessions: tuple[RunSession, ...]) -> None:
    write_text(folder / INFO, _RunInfo(sessions=sessions).model_dump_json(indent=2))


def _now() -> str:
    return datetime.now(tz=UTC).isoformat(timespec="seconds")


def _commit() -> str | None:
    """Return the Git commit of the checkout, with "+changes" if tracked files differ; None without a checkout."""
    checkout = Path(__file__).resolve().parents[2]
    if not (checkout / ".git").exists():
        return None
    command = ["git", "-C", str(checkout), "describe", "--always", "--exclude=*", "--abbrev=40", "--dirty=+changes"]
    try:
        return subprocess.run(command, capture_output=True, text=True, check=True, timeout=10).stdout.strip()  # noqa: S603
    except (OSError, subprocess.SubprocessError):  # git is not installed, or refuses a checkout of another user
        return None


def installed_versions() -> dict[str, str]:
    found = {"python": platform.python_version()}
    for package in _PACKAGES:
        with suppress(PackageNotFoundError):
            found[package] = version(package)
    return found
