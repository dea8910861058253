"""Look at the processes below one, through /proc; quick to import, because programs that tests write use it too."""

from __future__ import annotations

import time
from pathlib import Path


def processes() -> dict[int, int]:
    """The parent of every process that runs."""
    found = {}
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            fields = (folder / "stat").read_text(encoding="utf-8").rpartition(")")[2].split()
        except OSError:  # it has just ended
            continue
        if fields[0] != "Z":
            found[int(folder.name)] = int(fields[1])
    return found


def levels(pid: int) -> list[list[int]]:
    """The processes below `pid`: those that it started, those that these started, and so on."""
    parents = processes()
    found, level = [], [pid]
    while level := sorted(child for child, parent in parents.items() if parent in level):
        found.append(level)
    return found


def descendants(pid: int) -> list[int]:
    return [child for level in levels(pid) for child in level]


def until(condition: object, seconds: float = 10.0) -> bool:
    due = time.monotonic() + seconds
    assert callable(condition)
    while time.monotonic() < due:
        if condition():
            return True
        time.sleep(0.02)
    return False
