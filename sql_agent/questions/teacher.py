"""Ask a teacher model about each question, several at once; every reply is on disk, so a restart pays nothing twice."""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from functools import cache
from importlib.resources import files
from pathlib import Path
from typing import Generic, Protocol, TypeVar

from pydantic import TypeAdapter, ValidationError

from sql_agent.errors import ConfigError, DataError, JudgeCutOffError, JudgeError, JudgeRefusedError, SqlAgentError
from sql_agent.schemas import Question, Record, Usage
from sql_agent.system.files import drop_cut_line, naming, whole_lines
from sql_agent.system.messages import first_problem


class Entry(Record):
    """Base of a line: the question's id, and the digest of the question, the prompt and the teacher model."""

    id: str
    digest: str


class _WithId(Protocol):
    @property
    def id(self) -> str: ...


AnyEntry = TypeVar("AnyEntry", bound=_WithId)


class ProgressLog(Generic[AnyEntry]):
    """JSONL file with one entry for each finished question, written as soon as the question is done."""

    def __init__(self, path: Path, kind: type[AnyEntry]) -> None:
        """Read `path` if it exists, without a last line that an interrupt cut off.

        Raises DataError when the file cannot be written, or a line is wrong.
        """
        self.path = path
        self.entries: dict[str, AnyEntry] = {}
        self._adapter = TypeAdapter(kind)
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.touch()
            drop_cut_line(path)
            lines = whole_lines(path)
        except (OSError, UnicodeDecodeError) as error:
            raise DataError(f"cannot write {path}: {error}", hint="choose another place with --out") from error
        for number, line in enumerate(lines, 1):
            try:
                entry = self._adapter.validate_json(line)
            except ValidationError as error:
                what = first_problem(error)
                raise DataError(f"{path}, line {number}: {what}", hint="delete the file to ask again") from None
            self.entries[entry.id] = entry

    def find(self, question: Question, digest: str) -> AnyEntry | None:
        """Return the entry of a question. Raises ConfigError when its digest is another one."""
        entry = self.entries.get(question.id)
        if isinstance(entry, Entry) and entry.digest != digest:
            raise ConfigError(
                f"{self.path} was written for other questions, prompts or another teacher model: its question "
                f"{entry.id} differs from what is asked for now",
                hint="repeat the command that wrote it, choose another place with --out, or delete the file",
            )
        return entry

    def add(self, entry: AnyEntry) -> None:
        """Append `entry` to the file."""
        self.entries[entry.id] = entry
        with naming(self.path), self.path.open("a", encoding="utf-8", newline="\n") as file:
            file.write(self._adapter.dump_json(entry).decode() + "\n")


@dataclass
class TeacherRun:
    """Asks the teacher, `at_once` questions at a time; counts those that are done or refused, and the cost."""

    at_once: int
    on_done: Callable[[int], None]
    done: int = 0
    failed: dict[str, JudgeError] = field(default_factory=dict)
    usage: Usage = field(default_factory=Usage)

    async def ask_each(self, questions: Sequence[Question], ask: Callable[[Question], Awaitable[Usage]]) -> None:
        """Call `ask`, which logs the reply and returns its cost, for each question.

        A question that the teacher refuses, or whose reply is cut off, goes to `failed`. Any other error stops the run:
        requests under way are finished, then the first such error is raised.
        """
        waiting = iter(questions)
        stopped: list[SqlAgentError] = []

        async def work() -> None:
            while not stopped and (question := next(waiting, None)) is not None:
                try:
                    spent = await ask(question)
                    self.usage += spent  # not in one statement: others add to it during the await
                except SqlAgentError as error:
                    if isinstance(error, JudgeError):
                        self.usage += error.usage or Usage()
                    if isinstance(error, JudgeRefusedError | JudgeCutOffError):
                        self.failed[question.id] = error
                    else:
                        stopped.append(error)
                        return
                self.done += 1
                self.on_done(self.done)

        await asyncio.gather(*(work() for _ in range(self.at_once)))
        if stopped:
            raise stopped[0]


def digest_of(model: str, question: Question, prompt: str) -> str:
    """Return 16 hexadecimal digits that change with the model, the question or the prompt."""
    return hashlib.sha256("\0".join((model, question.model_dump_json(), prompt)).encode()).hexdigest()[:16]


@cache
def prompt_file(name: str) -> str:
    """Return the text of `prompts/NAME`."""
    return files("sql_agent.questions").joinpath("prompts", name).read_text(encoding="utf-8")
