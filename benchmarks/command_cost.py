"""Measure seconds and memory of a whole command: python benchmarks/command_cost.py --runs 5 -- sql-agent train --ci

It does the command again and again, and prints for each run its exit code, its seconds, and the most memory of all its
processes together at any time (PSS: memory that processes share counts once), read every second; then the medians.
"""

from __future__ import annotations

import argparse
import os
import statistics
import subprocess
import sys
import time
import uuid
from contextlib import suppress
from pathlib import Path

_MARK = "COMMAND_COST"  # an environment variable that every process of the command inherits


def main() -> int:
    """Run the command as often as is wanted; return 1 if a run failed."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", type=int, default=1, metavar="N")
    parser.add_argument("command", nargs="+")
    arguments = parser.parse_args()
    found = []
    for number in range(1, arguments.runs + 1):
        code, seconds, gigabytes = measured(arguments.command)
        found.append((code, seconds, gigabytes))
        print(f"run {number}: exit code {code}, {seconds:.0f} s, {gigabytes:.2f} GB", file=sys.stderr, flush=True)
    _, seconds, gigabytes = (statistics.median(column) for column in zip(*found, strict=True))
    print(f"median of {len(found)}: {seconds:.0f} s, {gigabytes:.2f} GB", file=sys.stderr)
    return int(any(code for code, _, _ in found))


def measured(command: list[str]) -> tuple[int, float, float]:
    """Run `command`, and return its exit code, its seconds, and the peak of its processes' memory in GB."""
    mark, started, peak = uuid.uuid4().hex, time.monotonic(), 0
    running = subprocess.Popen(command, env={**os.environ, _MARK: mark})
    while running.returncode is None:
        peak = max(peak, sum(map(_pss, _processes(mark, running.pid))))
        with suppress(subprocess.TimeoutExpired):
            running.wait(timeout=1)
    return running.returncode, time.monotonic() - started, peak / 1e9


def _processes(mark: str, first: int) -> list[Path]:
    """Return the folders below /proc of the processes that descend from `first` or have `mark` in their environment.

    A process that changes its title may overwrite its environment, and one whose parent has ended has another parent.
    """
    folders = {int(folder.name): folder for folder in Path("/proc").glob("[0-9]*")}
    statuses = {pid: _read(folder / "stat").rpartition(b") ")[2].split() for pid, folder in folders.items()}
    parents = {pid: int(status[1]) for pid, status in statuses.items() if status}
    found = {pid for pid, folder in folders.items() if f"{_MARK}={mark}".encode() in _read(folder / "environ")}
    found.add(first)
    while more := {pid for pid, parent in parents.items() if parent in found} - found:
        found |= more
    return [folders[pid] for pid in found if pid in folders]


def _pss(process: Path) -> int:
    """Return the bytes that a process holds; 0 if it has ended."""
    lines = _read(process / "smaps_rollup").decode().splitlines()
    return sum(int(line.split()[1]) * 1024 for line in lines if line.startswith("Pss:"))


def _read(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except (FileNotFoundError, ProcessLookupError, PermissionError):
        return b""


if __name__ == "__main__":
    sys.exit(main())
