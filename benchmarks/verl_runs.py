"""What the benchmarks of the verl backend share: run train_sql_agent.py, and read what verl measured."""

from __future__ import annotations

import json
import statistics
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

TRAIN = Path(__file__).resolve().parents[1] / "sql_agent" / "train_sql_agent.py"
FIRST = 3  # the first two steps compile and fill caches

Step = dict[str, float]


def through_lightning(
    name: str, *, model: str, train_file: Path, steps: int, out: Path, overrides: Sequence[str]
) -> list[Step]:
    """Train `steps` steps without a warm-up as run `name` under `out`; verl's metrics of each from the third on."""
    command = [
        sys.executable,
        str(TRAIN),
        "--backend=verl",
        f"--model={model}",
        f"--train-file={train_file}",
        f"--val-file={train_file.with_name('val.parquet')}",
        f"runs_dir={out}",
        f"run_name={name}",
        "warmup.steps=0",
        f"train.steps={steps}",
        f"train.save_every={steps + 1}",
        "data.val_questions=8",
        *overrides,
    ]
    subprocess.run(command, check=True)
    return steps_of(next((out / name).glob("verl-*.jsonl")))


def steps_of(path: Path) -> list[Step]:
    """The lines of verl's metrics file that time a step, from the third step on, without those that save."""
    lines = [json.loads(line) for line in path.read_text().splitlines()]
    timed = [e["data"] for e in lines if e["step"] >= FIRST and "timing_s/step" in e["data"]]
    return [step for step in timed if "timing_s/save_checkpoint" not in step]


def median(steps: Sequence[Step], key: str) -> float:
    """Of `key` over the steps; 0 where a step lacks it."""
    return statistics.median(step.get(key, 0.0) for step in steps)
