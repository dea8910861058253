"""Notice that a database file is no longer what was opened, so that no answer mixes two databases."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from sql_agent.errors import QueryError

_State = tuple[int, int, int, int]


@dataclass(frozen=True)
class FileState:
    """Tells one content of a database file from another by device, inode, size and time of change.

    `log` is that of SQLite's write-ahead log, where there is one that holds anything.
    """

    file: _State
    log: _State | None

    @classmethod
    def of(cls, path: Path) -> FileState:
        """Return the state of the file at `path` now. Raises OSError when there is none."""
        return cls(_state(path), _log_state(path))


def check_unchanged(path: Path, opened: FileState) -> None:
    """Raise QueryError when the file at `path` is not in the state `opened`: replaced, changed or removed."""
    try:
        now = FileState.of(path)
    except OSError as error:
        raise QueryError(
            "database_changed", f"the database {path} is gone: {error.strerror}", hint="put the file back"
        ) from error
    if now == opened:
        return
    what = "was replaced" if now.file[:2] != opened.file[:2] else "was changed"
    raise QueryError(
        "database_changed", f"the database {path} {what} while it was open", hint="start again to query it as it is now"
    )


def _state(path: Path) -> _State:
    found = path.stat()
    return found.st_dev, found.st_ino, found.st_size, found.st_mtime_ns


def _log_state(path: Path) -> _State | None:
    try:
        state = _state(path.with_name(f"{path.name}-wal"))
    except OSError:
        return None
    return state if state[2] else None
