"""Try the faults of docs/faults.md one by one: python benchmarks/single_faults.py --model FOLDER [NAME …]

No GPU is needed: the runs use the verl backend with the tests' replacement for verl, so that the policy is a script and
everything else is real. What a run must survive is done to one run, one fault after the other; what must end one has a
run of its own. Printed for each: the lines of the run about it with the seconds until each, what was lost, and how the
run ended. The exit code is 0 when each was said within 5 s, every run ended as it should, and nothing was left.
"""

from __future__ import annotations

import argparse
import os
import shutil
import signal
import sqlite3
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

import psutil
from faults import arguments_in

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

from tests.support.processes import lines, start_new  # noqa: E402

_PER_STEP = 8
_SAID_S = 5.0
# Python imports this in each process of a run; libfaketime cannot be used, because uvloop fails under it.
_CLOCK = """
import time
_time = time.time
def _offset():
    with open({offset!r}) as source:
        return float(source.read())
time.time = lambda: _time() + _offset()
time.time_ns = lambda: int(time.time() * 1e9)
"""
_END_S = 400.0


@dataclass
class Run:
    """One run, to which something is done."""

    folder: Path
    process: subprocess.Popen[str]
    printed: list[tuple[float, str]] = field(default_factory=list)
    done_at: float = 0.0
    family: list[psutil.Process] = field(default_factory=list)  # its processes before the fault

    @property
    def log(self) -> Path:
        return self.folder / "runs" / "r"

    def read(self) -> None:
        """Collect the lines that the run prints, until it ends."""
        for line in self.process.stdout or ():
            self.printed.append((time.monotonic(), line))

    def wait_for_steps(self, count: int) -> None:
        """Wait until `count` steps are trained and rollouts of the next have begun."""
        deadline = time.monotonic() + _END_S
        while len(lines(self.log / "metrics.jsonl")) < count and self.process.poll() is None:
            if time.monotonic() > deadline:
                self.show_output()
                raise TimeoutError(f"step {count} was not reached")
            time.sleep(0.05)
        time.sleep(0.7)
        if self.process.poll() is not None and not self.done_at:
            self.show_output()
            raise RuntimeError("the run ended by itself")

    def said(self, words: str) -> list[tuple[float, str]]:
        """Return the lines with `words` since the fault, with the seconds until each."""
        return [(at - self.done_at, line) for at, line in list(self.printed) if at > self.done_at and words in line]

    def lost(self) -> int:
        """Return how many rollouts were dropped so far."""
        return sum(rollout["dropped"] is not None for rollout in lines(self.log / "rollouts.jsonl"))

    def show_output(self) -> None:
        """Print what the run had printed at last."""
        print("".join(f"   | {at - self.done_at:6.1f} {line}" for at, line in self.printed[-25:]), flush=True)

    def wait_for_line(self, words: str, *, timeout: float = 30.0) -> bool:
        """Wait until a line with `words` was printed after the fault."""
        deadline = time.monotonic() + timeout
        while time.monotonic() < deadline and self.process.poll() is None:
            if any(words in line for at, line in list(self.printed) if at > self.done_at):
                return True
            time.sleep(0.05)
        return False


@dataclass(frozen=True)
class Fault:
    """Something that is done to a run: `words` are in the line about it, `code` is the exit code that is right.

    Without words it must lose no rollout, and nothing is said.
    """

    name: str
    act: Callable[[Run], None]
    words: str
    code: int = 0


def lock_database(run: Run) -> None:
    connection = sqlite3.connect(run.folder / "medical.db", isolation_level=None)
    connection.execute("BEGIN EXCLUSIVE")
    run.done_at = time.monotonic()
    time.sleep(8)
    connection.execute("ROLLBACK")
    connection.close()


def replace_database(run: Run) -> None:
    other = run.folder / "other.db"
    shutil.copy(run.folder / "medical.db", other)
    with sqlite3.connect(other) as connection:
        connection.execute("UPDATE drugs_info SET form = 'another'")
    run.done_at = time.monotonic()
    other.replace(run.folder / "medical.db")


def delete_database(run: Run) -> None:
    run.done_at = time.monotonic()
    (run.folder / "medical.db").unlink()


def jump(offset: float) -> Callable[[Run], None]:
    """Return an act that moves the clock of all processes of the run by `offset` seconds."""

    def act(run: Run) -> None:
        run.done_at = time.monotonic()
        (run.folder / "clock.new").write_text(str(offset))
        (run.folder / "clock.new").replace(run.folder / "clock")

    return act


def interrupt(run: Run) -> None:
    run.done_at = time.monotonic()
    run.process.send_signal(signal.SIGINT)


SURVIVED = [
    Fault("database locked for 8 s", lock_database, "locked"),
    Fault("clock an hour forward", jump(3600.0), ""),
    Fault("clock back again", jump(0.0), ""),
    Fault("clock an hour back", jump(-3600.0), ""),
]
FATAL = [
    Fault("database replaced", replace_database, "database", code=2),
    Fault("database deleted", delete_database, "database", code=2),
]


def try_survived(faults: Sequence[Fault], run: Run) -> bool:
    """Do all of `faults` to one run, one after the other; each time it must say so and train on. Then interrupt it."""
    fine = True
    for fault in faults:
        run.wait_for_steps(len(lines(run.log / "metrics.jsonl")) + 1)
        before, lost = len(lines(run.log / "metrics.jsonl")), run.lost()
        fault.act(run)
        run.wait_for_steps(before + 2)
        said = run.said(fault.words) if fault.words else []
        lost = run.lost() - lost
        show(fault, said, f"2 steps later {time.monotonic() - run.done_at:.1f} s; {lost} rollouts run again")
        ended = run.process.poll() is not None
        good = not ended and is_said_in_time(fault, said) and (bool(fault.words) or not lost)
        fine &= good
        if not good:
            run.show_output()
        if ended:
            return False
    interrupt(run)
    return end(run, Fault("Ctrl-C in a step", interrupt, "Stopping", code=130)) and fine


def try_fatal(fault: Fault, run: Run) -> bool:
    """Do what `fault` says to `run`, which must end with the exit code that is right."""
    run.wait_for_steps(1)
    fault.act(run)
    return end(run, fault)


def started(model: Path, folder: Path, steps: int, *overrides: str, **variables: str) -> Run:
    """Start a run whose clock can be set, with `overrides` of its settings and more `variables` of its environment."""
    (folder / "clock").write_text("0")
    (folder / "sitecustomize.py").write_text(_CLOCK.format(offset=str(folder / "clock")))
    path = f"{folder}{os.pathsep}{os.environ.get('PYTHONPATH', '')}"
    environment = {"FAKE_LATENCY_S": "0.3", "PYTHONPATH": path, **variables}
    arguments = [*arguments_in(folder, model, steps, _PER_STEP, 2), "runner.n_proxies=1", *overrides]
    process = start_new(arguments, script=ROOT / "tests" / "support" / "train_with_fake_verl.py", **environment)
    run = Run(folder, process)
    threading.Thread(target=run.read, daemon=True).start()
    return run


def end(run: Run, fault: Fault) -> bool:
    """Wait for the end of the run, print what was seen, and return whether it is as it should be."""
    with suppress(psutil.NoSuchProcess):
        run.family += psutil.Process(run.process.pid).children(recursive=True)
    try:
        run.process.wait(_END_S)
    except subprocess.TimeoutExpired:
        run.printed.append((time.monotonic(), f"HANGS after {_END_S:.0f} s"))
        run.process.kill()
    seconds = time.monotonic() - run.done_at
    _, alive = psutil.wait_procs(set(run.family), timeout=5)
    said = run.said(fault.words) if fault.words else []
    show(
        fault, said, f"ended after {seconds:.1f} s with exit code {run.process.returncode}; {len(alive)} processes left"
    )
    print(f"   last: {[line for _, line in run.printed if line.strip()][-1].strip()}")
    fine = run.process.returncode == fault.code and not alive and is_said_in_time(fault, said)
    if not fine:
        run.show_output()
    for left in alive:
        print(f"   left: {left}")
        left.kill()
    return fine


def is_said_in_time(fault: Fault, said: Sequence[tuple[float, str]]) -> bool:
    """Return whether the first line about it came in time, or none has to come."""
    return said[0][0] < _SAID_S if said else not fault.words


def show(fault: Fault, said: Sequence[tuple[float, str]], outcome: str) -> None:
    print(f"== {fault.name}\n   {outcome}")
    for seconds, line in said[:4]:
        print(f"   {seconds:5.1f} s  {line.strip()}", flush=True)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", required=True, type=Path, help="a Hugging Face folder; only its tokenizer is used")
    parser.add_argument("names", nargs="*", metavar="NAME", help="words in the names of faults to try (default: all)")
    arguments = parser.parse_args()
    fine = True
    if survived := [fault for fault in SURVIVED if is_wanted(fault, arguments.names)]:
        with tempfile.TemporaryDirectory() as folder:
            fine &= try_survived(survived, started(arguments.model.resolve(), Path(folder), 1000))
    for fault in [fault for fault in FATAL if is_wanted(fault, arguments.names)]:
        with tempfile.TemporaryDirectory() as folder:
            fine &= try_fatal(fault, started(arguments.model.resolve(), Path(folder), 30))
    return 0 if fine else 1


def is_wanted(fault: Fault, names: Sequence[str]) -> bool:
    """Return whether the words of `names` are in its name, or there are none."""
    return not names or any(name in fault.name for name in names)


if __name__ == "__main__":
    sys.exit(main())
