"""Read and write files: atomic writes, JSON, growing files, and errors that name the file."""

from __future__ import annotations

import errno
import json
import os
import shutil
import tempfile
import tomllib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from functools import cache
from pathlib import Path
from typing import Any

from sql_agent.errors import ConfigError, DataError, TrainingError
from sql_agent.system.resources import free_shown, nearest_existing

_DISK = {errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO}


@contextmanager
def named_disk_errors(then: Callable[[], str] = lambda: "run the command again") -> Iterator[None]:
    """Raise TrainingError in place of an OSError that names a file or comes from a full or broken disk.

    `then` returns the end of the hint about a full disk: what to do once space is free.
    """
    try:
        yield
    except OSError as error:
        if error.errno in _DISK:
            where = f" to {error.filename}, where {free_shown(Path(error.filename))}" if error.filename else ""
            raise TrainingError(
                f"could not write{where}: {error.strerror}", hint=f"free space on that disk, then {then()}"
            ) from error
        if error.filename is None:
            raise
        raise TrainingError(
            f"could not use {error.filename}: {error.strerror}",
            hint="name another path, or let this user read and write that path",
        ) from error


@contextmanager
def naming(path: Path) -> Iterator[None]:
    """Add `path` to an OSError without a file name, such as the error of a failed write."""
    try:
        yield
    except OSError as error:
        if error.filename is None:
            error.filename = str(path)
        raise


def check_writable(folder: Path, setting: str) -> None:
    """Raise ConfigError, which names `setting`, if no file can be written to `folder`. A missing folder is allowed."""
    try:
        # A file is written, because the mode of a folder does not tell whether this works, for example in /proc.
        with tempfile.TemporaryFile(dir=nearest_existing(folder)):
            pass
    except OSError as error:
        problem = "no file can be created there" if isinstance(error, FileNotFoundError) else error.strerror
        raise ConfigError(
            f"cannot write to {setting}={folder}: {problem}", hint=f"name another folder: {setting}=FOLDER"
        ) from None


def sync(path: Path) -> None:
    """Flush the file or folder `path` to the disk, so that a power cut does not destroy `path`."""
    opened = os.open(path, os.O_RDONLY)
    try:
        os.fsync(opened)
    finally:
        os.close(opened)


def sync_tree(folder: Path) -> None:
    for path in (*folder.rglob("*"), folder):
        sync(path)


@contextmanager
def atomic_write(path: Path) -> Iterator[Path]:
    """Yield the path of a temporary file to write, which replaces `path` if the block ends without an error.

    After a power cut, `path` has its old or its new content, but no mixture.
    """
    unfinished = path.with_name(f"{path.name}.{os.getpid()}.part")
    try:
        with naming(path):
            yield unfinished
            sync(unfinished)
            unfinished.replace(path)
    finally:
        unfinished.unlink(missing_ok=True)


def write_text(path: Path, text: str) -> None:
    """Write `text`, with one line break at the end, by `atomic_write`."""
    with atomic_write(path) as unfinished:
        unfinished.write_text(text.rstrip("\n") + "\n", "utf-8")


def append_line(path: Path, line: str) -> None:
    with naming(path), path.open("a", encoding="utf-8", newline="\n") as file:
        file.write(line + "\n")


@contextmanager
def atomic_folder(path: Path) -> Iterator[Path]:
    """Yield a path at which to create a folder, which is renamed to `path` if the block ends without an error."""
    unfinished = path.with_name(f"{path.name}.{os.getpid()}.part")
    try:
        yield unfinished
        sync_tree(unfinished)
        with naming(path):
            unfinished.rename(path)
    finally:
        shutil.rmtree(unfinished, ignore_errors=True)


def copy_folder(source: Path, copy: Path) -> None:
    """Copy the folder `source` to the new folder `copy`. Raises OSError, which names the file in `copy`."""
    copy.mkdir()
    for path in sorted(source.rglob("*")):
        target = copy / path.relative_to(source)
        try:
            if path.is_dir():
                target.mkdir()
            else:
                shutil.copyfile(path, target)
        except OSError as error:  # shutil names the source file, perhaps on another disk
            raise OSError(error.errno, error.strerror, str(target)) from error


def drop_cut_line(path: Path) -> None:
    """Remove the last line of `path` if the line has no line break, as after its writer was killed."""
    os.truncate(path, path.read_bytes().rfind(b"\n") + 1)


def whole_lines(path: Path) -> list[str]:
    """Return the lines of `path` that end in a line break, without the line breaks; [] if `path` is missing."""
    return path.read_bytes().decode("utf-8").split("\n")[:-1] if path.exists() else []


def filled_lines(path: Path) -> list[tuple[int, str]]:
    """Return the lines of `path` that are not blank, with their numbers. Raises DataError."""
    try:
        # Not splitlines(), which also splits at characters such as U+2028 inside texts. -sig drops a byte order mark.
        lines = path.read_text(encoding="utf-8-sig").split("\n")
    except OSError as error:
        raise DataError(f"cannot read {path}: {error.strerror or error}", hint="check the path") from None
    except UnicodeDecodeError as error:
        raise DataError(f"{path} is not UTF-8: {error}", hint="save the file as UTF-8") from None
    return [(number, line) for number, line in enumerate(lines, 1) if line.strip()]


def timestamped_folder(parent: Path, prefix: str = "") -> Path:
    """Create a new folder in `parent`, named `prefix` plus the UTC time, such as 20261124-180511, and return it.

    If the name exists, the folder gets a number too, such as 20261124-180511-2.
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
    try:
        return json_object(path.read_bytes())
    except ValueError as error:
        raise DataError(f"{path} is damaged: {error}", hint=hint) from None


def read_toml(path: Path, hint: str) -> dict[str, Any]:
    try:
        return tomllib.loads(path.read_text("utf-8"))
    except OSError as error:
        raise ConfigError(f"cannot read {path}: {error.strerror}", hint=hint) from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise ConfigError(f"{path} is not valid TOML: {error}", hint="correct the line") from None


def json_object(content: bytes) -> dict[str, Any]:
    value = json.loads(content)
    if not isinstance(value, dict):
        raise ValueError("not a JSON object")  # noqa: TRY004  the file is wrong, not the caller
    return value


class GrowingFile:
    """Reads the complete lines of a file that another process appends to, each line once."""

    def __init__(self, path: Path, *, position: int = 0) -> None:
        """Read from the byte offset `position` of `path`, which may be missing at first."""
        self._path = path
        self._position = position

    def new(self) -> Iterator[bytes]:
        """Yield the lines, with line breaks, that were appended since the last call.

        If the caller stops at a line, the next call starts with this line.
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
        """Whether the file is now shorter than the part that was read."""
        return self._position > (self._path.stat().st_size if self._path.exists() else 0)


@cache
def prompt_file(module: str, name: str) -> str:
    """Return the text of the file prompts/`name` beside the Python file `module`."""
    return Path(module).with_name("prompts").joinpath(name).read_text("utf-8")
