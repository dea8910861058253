"""Read and write files: atomically, as JSON, while they grow; name the file that failed."""

from __future__ import annotations

import errno
import json
import os
import shutil
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from sql_agent.errors import ConfigError, DataError, TrainingError
from sql_agent.system.resources import free_disk, nearest_existing, shown_size

_DISK = {errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO}


@contextmanager
def named_disk_errors(then: Callable[[], str] = lambda: "run the command again") -> Iterator[None]:
    """Raise a TrainingError for an OSError of a full or broken disk, or of a named file, wherever it came from.

    `then` returns what to do once there is room on the disk.
    """
    try:
        yield
    except OSError as error:
        if error.errno in _DISK:
            where = ""
            if error.filename:
                where = f" to {error.filename}, where {shown_size(free_disk(Path(error.filename)))} are free"
            raise TrainingError(
                f"could not write{where}: {error.strerror}", hint=f"free space on that disk, then {then()}"
            ) from error
        if error.filename is None:
            raise
        raise TrainingError(
            f"could not use {error.filename}: {error.strerror}",
            hint="name another path, or let this user read and write it",
        ) from error


@contextmanager
def naming(path: Path) -> Iterator[None]:
    """Add `path` to an OSError that names no file, because the system does not say what a write went to."""
    try:
        yield
    except OSError as error:
        if error.filename is None:
            error.filename = str(path)
        raise


def make_writable(folder: Path, setting: str) -> None:
    """Create `folder` if it is missing. Raises ConfigError that names `setting` when nothing can be written there."""
    check_writable(folder, setting)
    folder.mkdir(parents=True, exist_ok=True)


def check_writable(folder: Path, setting: str) -> None:
    """Raise as `make_writable` does, and leave nothing behind."""
    try:
        # By a file, because a file system like /proc takes none whatever the mode of its folders says.
        with tempfile.TemporaryFile(dir=nearest_existing(folder)):
            pass
    except OSError as error:
        problem = "no file can be created there" if isinstance(error, FileNotFoundError) else error.strerror
        raise ConfigError(
            f"cannot write to {setting}={folder}: {problem}", hint=f"name another folder: {setting}=FOLDER"
        ) from None


def sync(path: Path) -> None:
    """Write the file, or the names in the folder, at `path` to the disk, so that a power cut does not lose them."""
    opened = os.open(path, os.O_RDONLY)
    try:
        os.fsync(opened)
    finally:
        os.close(opened)


def sync_tree(folder: Path) -> None:
    """Call `sync` for `folder` and everything below it."""
    for path in (*folder.rglob("*"), folder):
        sync(path)


@contextmanager
def atomic_write(path: Path) -> Iterator[Path]:
    """Yield a temporary path beside `path` to write to; it replaces `path` when the context ends without an error.

    After a power cut `path` has its old content or all of the new.
    """
    unfinished = path.with_name(f"{path.name}.{os.getpid()}.part")
    try:
        with naming(path):
            yield unfinished
            sync(unfinished)
            unfinished.replace(path)
    finally:
        unfinished.unlink(missing_ok=True)


@contextmanager
def atomic_folder(path: Path) -> Iterator[Path]:
    """Yield a path next to `path`, where the caller makes a folder; it is renamed to `path` unless an error ends it.

    Raises OSError when there is something at `path` by then. After an error nothing is left.
    """
    unfinished = path.with_name(f"{path.name}.{os.getpid()}.part")
    try:
        yield unfinished
        sync_tree(unfinished)
        with naming(path):
            unfinished.rename(path)
    finally:
        shutil.rmtree(unfinished, ignore_errors=True)


def copy_folder(source: Path, copy: Path) -> None:
    """Copy all files below `source` into the new folder `copy`. Raises OSError that names the file of the copy."""
    copy.mkdir()
    for path in sorted(source.rglob("*")):
        target = copy / path.relative_to(source)
        try:
            if path.is_dir():
                target.mkdir()
            else:
                shutil.copyfile(path, target)
        except OSError as error:  # shutil names the original, on another disk perhaps
            raise OSError(error.errno, error.strerror, str(target)) from error


def drop_cut_line(path: Path) -> None:
    """Remove the last line of `path` if it has no end, because a process was killed while it wrote that line."""
    content = path.read_bytes()
    if not content.endswith(b"\n"):
        with path.open("r+b") as file:
            file.truncate(content.rfind(b"\n") + 1)


def whole_lines(path: Path) -> list[str]:
    """Return the lines of `path` without their ends, none if it is missing.

    A last line without an end is left out, because a process was killed while it wrote that line.
    """
    return path.read_bytes().decode("utf-8").split("\n")[:-1] if path.exists() else []


def timestamped_folder(parent: Path, prefix: str = "") -> Path:
    """Create a new folder in `parent`, named `prefix` and the UTC time, and return it.

    Where a folder of the same second exists, a number is added to the name.
    """
    name = f"{prefix}{datetime.now(tz=UTC):%Y%m%d-%H%M%S}"
    folder, number = parent / name, 1
    while True:
        try:
            folder.mkdir(parents=True)
        except FileExistsError:
            number += 1
            folder = parent / f"{name}-{number}"
        else:
            return folder


def read_object(path: Path, *, hint: str) -> dict[str, Any]:
    """Return the JSON object in the file `path`. Raises DataError with `hint` when there is none."""
    try:
        return _json_object(path.read_bytes())
    except ValueError as error:
        raise DataError(f"{path} is damaged: {error}", hint=hint) from None


def parse_line(line: bytes, path: Path, number: int) -> dict[str, Any]:
    """Return the JSON object in `line`, line `number` of the JSONL file `path`. Raises DataError when there is none."""
    try:
        return _json_object(line)
    except ValueError as error:
        raise damaged_line(path, number, str(error)) from None


def damaged_line(path: Path, number: int, problem: str) -> DataError:
    """Build the error for line `number` of the JSONL file `path`, with the command that removes the line."""
    hint = f"remove that line, for example by sed -i '{number}d' {path}"
    return DataError(f"{path} is damaged: line {number}: {problem}", hint=hint)


def _json_object(content: bytes) -> dict[str, Any]:
    value = json.loads(content)
    if not isinstance(value, dict):
        raise ValueError("not a JSON object")  # noqa: TRY004  the file is wrong, not the caller
    return value


class GrowingFile:
    """Reads the lines of a file once each; a last line without an end waits until it has one."""

    def __init__(self, path: Path, *, position: int = 0) -> None:
        """Read `path`, which need not exist yet, from the byte `position` on."""
        self._path = path
        self._position = position

    def new(self) -> Iterator[bytes]:
        """Yield the lines, with their ends, that were appended since the last call; none where there is no file.

        A line at which the caller stops comes again.
        """
        if not self._path.exists():
            return
        with self._path.open("rb") as source:
            source.seek(self._position)
            for line in source:
                if not line.endswith(b"\n"):
                    return
                yield line
                self._position += len(line)

    @property
    def was_cut(self) -> bool:
        """Whether the file is shorter than what was read of it."""
        return self._position > (self._path.stat().st_size if self._path.exists() else 0)
