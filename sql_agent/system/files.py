"""Files of which nobody ever sees half, and folders that nobody else has."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path


@contextmanager
def atomic_write(path: Path) -> Iterator[Path]:
    """A file beside `path` to write to, which takes its place when the context ends without an error."""
    unfinished = path.with_name(f"{path.name}.{os.getpid()}.part")
    try:
        yield unfinished
        unfinished.replace(path)
    finally:
        unfinished.unlink(missing_ok=True)


def timestamped_folder(parent: Path, prefix: str = "") -> Path:
    """Make a folder in `parent` named after this second, with a number where others began in the same one."""
    name = f"{prefix}{datetime.now(tz=UTC):%Y%m%d-%H%M%S}"
    folder, others = parent / name, 0
    while True:
        try:
            folder.mkdir(parents=True)
        except FileExistsError:
            others += 1
            folder = parent / f"{name}-{others + 1}"
        else:
            return folder
