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

import psutil

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


def _processes(mark: str, first: int) -> list[psutil.Process]:
    """Return the processes that descend from `first` or have `mark` in their environment.

    A process that changes its title may overwrite its environment, and one whose parent has ended has another parent.
    """
    processes = {process.pid: process for process in psutil.process_iter(["ppid", "environ"])}
    found = {pid for pid, each in processes.items() if (each.info["environ"] or {}).get(_MARK) == mark or pid == first}
    while more := {pid for pid, process in processes.items() if process.info["ppid"] in found} - found:
        found |= more
    return [processes[pid] for pid in found]


def _pss(process: psutil.Process) -> int:
    """Return the bytes that a process holds; 0 if it has ended."""
    try:
        return int(process.memory_full_info().pss)
    except psutil.Error:
        return 0


if __name__ == "__main__":
    sys.exit(main())
