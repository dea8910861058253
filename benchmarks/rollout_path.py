"""Measure a rollout's cost without the model's: python benchmarks/rollout_path.py --model FOLDER --runners 1 4

No GPU is needed: it runs the verl backend with the tests' replacement for verl. Store, scheduler, proxies, runners,
agent, tool and judge are the real ones, the policy is a script that answers after `--latency` seconds. For each number
of runner processes it prints rollouts a second, their ratio to the first number's, and the processor time of a rollout
by part. The tokenizer is that of FOLDER.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections import defaultdict
from pathlib import Path
from typing import Any

import psutil

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

from sql_agent.schemas import Question  # noqa: E402
from tests.support.small_database import make_database  # noqa: E402

FIRST = 2  # steps before this one are not counted
PARTS = ("store and scheduler", "proxies", "runners", "endpoints")


def main() -> None:
    """Run every number of runners and print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", required=True)
    parser.add_argument("--runners", type=int, nargs="+", default=[1, 2, 4])
    parser.add_argument("--proxies", type=int, default=2)
    parser.add_argument("--rollouts", type=int, default=64, help="a step, in groups of eight")
    parser.add_argument("--steps", type=int, default=8)
    parser.add_argument("--latency", type=float, default=0.1, help="seconds until the policy answers")
    arguments = parser.parse_args()
    print(f"{arguments.rollouts} rollouts a step, {os.cpu_count()} cores, policy answers after {arguments.latency} s")
    first = 0.0
    for runners in arguments.runners:
        with tempfile.TemporaryDirectory() as folder:
            rate, cost = measured(runners, Path(folder), arguments)
        first = first or rate
        parts = ", ".join(f"{part} {1000 * cost[part]:.1f}" for part in PARTS)
        print(f"{runners} runners: {rate:6.1f} rollouts/s ({rate / first:.2f} times the first), ms a rollout: {parts}")


def measured(runners: int, folder: Path, arguments: argparse.Namespace) -> tuple[float, dict[str, float]]:
    """Return the rollouts a second while rollouts run, and the processor seconds of a rollout by part."""
    process = start(runners, folder, arguments)
    metrics = folder / "runs" / "bench" / "metrics.jsonl"
    try:
        wait_for_steps(metrics, FIRST, process)
        before = processor_seconds(process.pid)
        wait_for_steps(metrics, arguments.steps, process)
        after = processor_seconds(process.pid)
    finally:
        process.terminate()
        process.wait()
    rollouts = arguments.rollouts * (arguments.steps - FIRST)
    steps = [json.loads(line) for line in metrics.read_text().splitlines()][FIRST:]
    rate = arguments.rollouts / statistics.median(step["timing/rollout_s"] for step in steps)
    return rate, {part: (after[part] - before[part]) / rollouts for part in PARTS}


def start(runners: int, folder: Path, arguments: argparse.Namespace) -> subprocess.Popen[bytes]:
    """Start a training run with the replacement for verl, with more steps than are measured."""
    make_database(folder / "medical.db")
    for name in ("train", "val"):
        questions = [
            Question(id=f"{name}{i}", question=f"{name} {i}: in which form does Drug 1 come?", answer="capsule")
            for i in range(64)
        ]
        (folder / f"{name}.jsonl").write_text("".join(q.model_dump_json() + "\n" for q in questions))
    command: list[Any] = [
        sys.executable, ROOT / "tests" / "support" / "train_with_fake_verl.py",
        "--backend=verl", f"--model={arguments.model}",
        f"--train-file={folder / 'train.jsonl'}", f"--val-file={folder / 'val.jsonl'}",
        f"database.path={folder / 'medical.db'}", f"runs_dir={folder / 'runs'}", "run_name=bench", "sft.steps=0",
        f"runner.n_runners={runners}", f"runner.n_proxies={arguments.proxies}", "verl.gpu_memory_gb=80",
        f"train.questions_per_step={arguments.rollouts // 8}", f"train.steps={arguments.steps + 5}",
        "train.save_every=1000", "data.val_questions=1", "data.natural_questions=0",
    ]  # fmt: skip
    environment = os.environ | {"FAKE_LATENCY_S": str(arguments.latency)}
    quiet = subprocess.DEVNULL
    return subprocess.Popen([str(part) for part in command], env=environment, stdout=quiet, stderr=quiet)


def wait_for_steps(metrics: Path, steps: int, process: subprocess.Popen[bytes]) -> None:
    """Wait until `metrics` has `steps` lines; exit with an error when `process` ends before."""
    while not metrics.exists() or len(metrics.read_text().splitlines()) < steps:
        if process.poll() is not None:
            sys.exit(f"error: the run ended with exit code {process.returncode}")
        time.sleep(0.05)


def processor_seconds(main_process: int) -> dict[str, float]:
    """Return the processor time of each part of the run until now, in seconds."""
    root = psutil.Process(main_process)
    spent: dict[str, float] = defaultdict(float)
    for process in (root, *root.children(recursive=True)):
        times = process.cpu_times()
        spent[part_of(process, root)] += times.user + times.system
    return spent


def part_of(process: psutil.Process, root: psutil.Process) -> str:
    """Return the part of the run that `process` is.

    All but the endpoints are forks of one process; a proxy is recognised by the file of its output.
    """
    if process == root:
        return "store and scheduler"
    if any("fake_verl" in word and "train_with" not in word for word in process.cmdline()):
        return "endpoints"
    output = Path(f"/proc/{process.pid}/fd/1").readlink()
    return "proxies" if output.name.startswith("proxy-") else "runners"


if __name__ == "__main__":
    main()
