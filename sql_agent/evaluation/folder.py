"""Write and read the folder of an evaluation: model, settings, questions and rollouts."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, TypeVar

from filelock import FileLock, Timeout
from pydantic import ValidationError

from sql_agent.config.settings import Source, flatten, merge
from sql_agent.errors import ConfigError, DataError
from sql_agent.schemas import Question, Record, RolloutRecord
from sql_agent.system.files import append_line, drop_cut_line, whole_lines, write_text
from sql_agent.system.messages import first_problem

Key = tuple[str, str]  # the name of a set and the id of a question
_CONFIG, _QUESTIONS, _RECORDS = "config.json", "questions.jsonl", "records.jsonl"


class About(Record):
    """The model, the settings and the judge of an evaluation; `model` is the name in tables and reports.

    `base_url` is the endpoint of a remote model, and `remote_model` the name of the model at this endpoint. `run` is
    the run that trained the model, if known. Each question is asked `samples` times. If the share of equal answers is
    less than `refuse_below` (0–1), the vote is a refusal; if `refuse_below` is None, `best_threshold` chooses it.
    """

    model: str
    base_url: str | None = None
    remote_model: str | None = None
    run: str | None = None
    judge: str
    version: str
    started: str
    settings: dict[str, Any]
    samples: int = 1
    refuse_below: float | None = None


class _AskedLine(Record):
    set: str
    question: Question


class _RecordLine(Record):
    set: str
    record: RolloutRecord


_Read = TypeVar("_Read", bound=Record)


class EvaluationFolder:
    """The files of one evaluation. A process that is killed loses at most one unfinished record."""

    def __init__(self, path: Path) -> None:
        self.path = path

    @staticmethod
    def is_one(path: Path) -> bool:
        return (path / _QUESTIONS).exists() and (path / _CONFIG).exists()

    @classmethod
    def create(cls, path: Path, about: About, sets: Mapping[str, Sequence[Question]]) -> EvaluationFolder:
        """Write `about` and the questions of `sets` into the existing folder `path`."""
        write_text(path / _CONFIG, about.model_dump_json(indent=2))
        lines = [_AskedLine(set=name, question=q).model_dump_json() for name, of in sets.items() for q in of]
        write_text(path / _QUESTIONS, "\n".join(lines))
        return cls(path)

    @classmethod
    def open(cls, path: Path) -> EvaluationFolder:
        if not cls.is_one(path):
            raise DataError(f"there is no evaluation in {path}", hint="name a folder such as runs/eval-20261122-101500")
        return cls(path)

    def about(self) -> About:
        path = self.path / _CONFIG
        return _read(About, path.read_bytes(), path)

    def check_trusted(self, sources: Sequence[Source]) -> None:
        """Raise ConfigError if a setting of the folder runs code, unless a trusted source has the same value."""
        merge([Source(str(self.path / _CONFIG), flatten(self.about().settings), trusted=False)], confirmed_by=sources)

    def sets(self) -> dict[str, list[Question]]:
        sets: dict[str, list[Question]] = {}
        for line in _lines(_AskedLine, self.path / _QUESTIONS):
            sets.setdefault(line.set, []).append(line.question)
        return sets

    def records(self) -> dict[Key, RolloutRecord]:
        """Return the newest record of each question, keyed by set name and question id."""
        lines = _lines(_RecordLine, self.path / _RECORDS)
        return {(line.set, line.record.question.id): line.record for line in lines}

    def lock(self) -> FileLock:
        """Lock the evaluation until the lock is released or this process ends, and remove an unfinished last record."""
        held = FileLock(self.path / ".lock")
        try:
            held.acquire(timeout=0)
        except Timeout:
            raise ConfigError(
                f"another process is asking the questions of {self.path}", hint="wait for that process, or end it"
            ) from None
        if (records := self.path / _RECORDS).exists():
            drop_cut_line(records)
        return held

    def append(self, name: str, record: RolloutRecord) -> None:
        """Append the record of a question of the set `name`; requires the lock."""
        append_line(self.path / _RECORDS, _RecordLine(set=name, record=record).model_dump_json())


def _lines(kind: type[_Read], path: Path) -> list[_Read]:
    return [_read(kind, line.encode(), f"{path}, line {n}") for n, line in enumerate(whole_lines(path), 1)]


def _read(kind: type[_Read], text: bytes, where: object) -> _Read:
    try:
        return kind.model_validate_json(text)
    except ValidationError as error:
        raise DataError(
            f"{where} is damaged, or another version of this program wrote it: {first_problem(error)}",
            hint="use the version of this program that config.json names, or evaluate again",
        ) from None
