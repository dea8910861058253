"""Read the JSONL files of a run, each line of which has the step that it belongs to, and cut them back to a step."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from sql_agent.errors import DataError
from sql_agent.system.files import GrowingFile, atomic_write, damaged_line, parse_line

Row = dict[str, Any]  # a line of a JSONL file


def run_lines(path: Path) -> Iterator[Row]:
    """Yield the lines of `path`, none if it is missing, without a last one that has no end.

    A process was killed while it wrote such a line. Raises DataError that names another line that is no line of a run.
    """
    yield from GrowingLines(path).new()


class GrowingLines:
    """Reads the lines of a file that another process appends to; a last one without an end waits until it has one."""

    def __init__(self, path: Path) -> None:
        """Read `path`, which need not exist yet."""
        self._path = path
        self._file = GrowingFile(path)
        self._read = 0  # lines

    def new(self) -> Iterator[Row]:
        """Yield the lines that were appended since the last call; none where the file does not exist yet.

        Raises DataError that names a line that is no line of a run, now and in each later call until it is mended. A
        line at which the caller raises an error comes again, too.
        """
        for line in self._file.new():
            yield _row(line, self._path, self._read + 1)
            self._read += 1

    def damaged(self, problem: str) -> DataError:
        """Return the error to raise for the line that was yielded last."""
        return damaged_line(self._path, self._read + 1, problem)

    @property
    def was_cut(self) -> bool:
        """Whether the file is shorter than what was read of it, because a resumed run repeats its last steps."""
        return self._file.was_cut


@dataclass(frozen=True)
class Kept:
    """Says what `cut_after` left of a file: the last step that has a line (0 without any), and what it removed.

    `removed` counts the whole lines of later steps; `was_cut` says that the last line had no end.
    """

    last_step: int
    removed: int
    was_cut: bool


def cut_after(path: Path, step: int) -> Kept:
    """Remove the lines of the steps after `step` from a file of a run, if it exists, and a last line without an end.

    Raises DataError that names a line that is no line of a run; the file is then left as it is.
    """
    lines = []
    if path.exists():
        with path.open("rb") as source:
            lines = list(source)
    was_cut = bool(lines) and not lines[-1].endswith(b"\n")
    whole = lines[:-1] if was_cut else lines
    steps = [_row(line, path, number)["step"] for number, line in enumerate(whole, 1)]
    kept = [line for line, of_line in zip(whole, steps, strict=True) if of_line <= step]
    if len(kept) < len(lines):
        with atomic_write(path) as unfinished:
            unfinished.write_bytes(b"".join(kept))
    return Kept(max((of for of in steps if of <= step), default=0), len(whole) - len(kept), was_cut)


def _row(line: bytes, path: Path, number: int) -> Row:
    row = parse_line(line, path, number)
    if not isinstance(row.get("step"), int):
        raise damaged_line(path, number, "it names no step")
    return row
