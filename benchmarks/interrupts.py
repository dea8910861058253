"""Interrupt a run at each stage: python benchmarks/interrupts.py --model FOLDER [--signal SIGTERM]

Runs of the local backend, which take seconds with a tiny model, get a signal while they fine-tune, validate, train,
save and validate again, and the installation check gets one too. Printed for each: the seconds until the first line
about it and until the end, the exit code, the last line, the last step that is saved, and what was left. The exit code
is 0 when each ended with 130 within 30 s, with no process left.
"""

from __future__ import annotations

import argparse
import json
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

import psutil

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

from tests.support.processes import SCRIPT, family_and_ports, lines, start_new  # noqa: E402
from tests.support.tiny_training import tiny_training  # noqa: E402

_END_S = 300.0


@dataclass
class Watched:
    """A process with what it has printed, and the folder of its run."""

    process: subprocess.Popen[str]
    run: Path
    printed: list[tuple[float, str]] = field(default_factory=list)

    def read(self) -> None:
        """Collect the output until it ends."""
        for line in self.process.stdout or ():
            self.printed.append((time.monotonic(), line.strip()))

    def has_printed(self, words: str) -> bool:
        return any(words in line for _, line in list(self.printed))

    @property
    def steps(self) -> int:
        return len(lines(self.run / "metrics.jsonl"))

    @property
    def saves(self) -> list[str]:
        folder = self.run / "checkpoints"
        return sorted(path.name for path in folder.iterdir()) if folder.exists() else []


STAGES: dict[str, Callable[[Watched], bool]] = {
    "fine-tuning": lambda run: run.has_printed("SFT "),
    "first validation": lambda run: run.has_printed("Preflight"),
    "a step": lambda run: run.steps >= 1,
    "saving": lambda run: bool(run.saves),
    "last validation": lambda run: run.steps >= 3 and "step-000003" in run.saves,
}


def interrupt(name: str, watched: Watched, is_due: Callable[[Watched], bool], number: signal.Signals) -> bool:
    """Send the signal `number` once `is_due`, print what was seen, and return whether it is as it should be."""
    reader = threading.Thread(target=watched.read, daemon=True)
    reader.start()
    process, deadline = watched.process, time.monotonic() + _END_S
    while not is_due(watched) and process.poll() is None and time.monotonic() < deadline:
        time.sleep(0.005)
    family, _ = family_and_ports(process) if process.poll() is None else ([], set())
    sent = time.monotonic()
    process.send_signal(number)
    try:
        process.wait(60)
    except subprocess.TimeoutExpired:
        process.kill()
    seconds = time.monotonic() - sent
    reader.join(5)
    _, left = psutil.wait_procs(family, timeout=5)
    said = [(at - sent, line) for at, line in watched.printed if at > sent and line]
    first = f"{said[0][0]:.1f} s {said[0][1]!r}" if said else "nothing"
    last = said[-1][1] if said else ""
    print(f"== {number.name} in {name}: first {first}; ended after {seconds:.1f} s with {process.returncode}; saved "
          f"{watched.saves[-1:]}; {len(left)} processes left\n   last: {last}", flush=True)  # fmt: skip
    for process_left in left:
        process_left.kill()
    return process.returncode == 130 and not left and seconds < 30 and "Traceback" not in str(said)


def with_sql(questions: Path) -> None:
    """Give each question a statement, from which the model can be fine-tuned."""
    sql = "SELECT form FROM drugs_info WHERE med_name = 'Drug 1'"
    rows = [json.dumps(row | {"sql": sql, "answer": "capsule"}) + "\n" for row in lines(questions)]
    questions.write_text("".join(rows), encoding="utf-8")


def main() -> int:
    """Interrupt each stage and print what was seen."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", required=True, type=Path, help="a Hugging Face folder of a tiny model")
    parser.add_argument("--signal", default="SIGINT", choices=["SIGINT", "SIGTERM"])
    arguments = parser.parse_args()
    number, fine = signal.Signals[arguments.signal], True
    for name, is_due in STAGES.items():
        with tempfile.TemporaryDirectory() as folder:
            tiny = tiny_training(Path(folder), arguments.model.resolve())
            extra = ["train.steps=3", "data.natural_questions=0", *(["sft.steps=400"] if name == "fine-tuning" else [])]
            with_sql(Path(folder) / "train.jsonl")
            process = start_new([*tiny, *extra], script=SCRIPT)
            fine &= interrupt(name, Watched(process, Path(folder) / "runs" / "r"), is_due, number)
    process = start_new([], script=ROOT / "utils" / "check_install.py")
    started = time.monotonic()
    fine &= interrupt(
        "the installation check", Watched(process, Path()), lambda _: time.monotonic() > started + 3, number
    )
    return 0 if fine else 1


if __name__ == "__main__":
    sys.exit(main())
