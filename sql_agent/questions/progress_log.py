"""Keep all that a teacher model finished in a file, so that an interrupted command goes on and pays nothing twice."""

from __future__ import annotations

from pathlib import Path
from typing import Generic, TypeVar

from pydantic import ValidationError

from sql_agent.errors import ConfigError, DataError
from sql_agent.schemas import Question, Record
from sql_agent.system.files import drop_cut_line, naming, whole_lines
from sql_agent.system.validation import first_problem


class Entry(Record):
    """Base of a line: the question's id, and `digest`, which tells for which question, prompt and model it holds."""

    id: str
    digest: str


AnyEntry = TypeVar("AnyEntry", bound=Entry)


class ProgressLog(Generic[AnyEntry]):
    """Reads and extends the file; each line is on disk as soon as its question is done."""

    def __init__(self, path: Path, kind: type[AnyEntry]) -> None:
        """Read `path` if it exists; a last line that an interrupt cut off is removed. Raises DataError."""
        self.path = path
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            lines = self._whole_lines()
        except (OSError, UnicodeDecodeError) as error:
            raise DataError(f"cannot use {path}: {error}", hint="choose another place with --out") from error
        self._entries: dict[str, AnyEntry] = {}
        for number, line in enumerate(lines, 1):
            try:
                entry = kind.model_validate_json(line)
            except ValidationError as error:
                what = first_problem(error)
                raise DataError(f"{path}, line {number}: {what}", hint="delete the file to ask again") from None
            self._entries[entry.id] = entry

    def __len__(self) -> int:
        return len(self._entries)

    def find(self, question: Question, digest: str) -> AnyEntry | None:
        """Return the entry of a question. Raises ConfigError when it was made for another one under the same id."""
        entry = self._entries.get(question.id)
        if entry is not None and entry.digest != digest:
            raise ConfigError(
                f"{self.path} was written for other questions, prompts or another teacher model: its question "
                f"{entry.id} differs from what is asked for now",
                hint="repeat the command that wrote it, choose another place with --out, or delete the file",
            )
        return entry

    def add(self, entry: AnyEntry) -> None:
        """Append `entry` to the file."""
        self._entries[entry.id] = entry
        with naming(self.path), self.path.open("a", encoding="utf-8", newline="\n") as file:
            file.write(entry.model_dump_json() + "\n")

    def _whole_lines(self) -> list[str]:
        if self.path.exists():
            drop_cut_line(self.path)
        return whole_lines(self.path)
