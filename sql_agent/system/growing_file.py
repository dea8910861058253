"""Read a file that another process appends to."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path


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
