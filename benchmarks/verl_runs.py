"""Run train_sql_agent.py and read verl's metrics, for the benchmarks of the verl backend."""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

TRAIN = Path(__file__).resolve().parents[1] / "sql_agent" / "train_sql_agent.py"
FIRST = 3  # the first two steps compile and fill caches

Step = dict[str, float]


def arguments_parser(description: str | None, *, out: Path) -> argparse.ArgumentParser:
    """Make a parser of the arguments that every such benchmark has; parse with `parse_intermixed_args`."""
    parser = argparse.ArgumentParser(description=description, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", required=True)
    parser.add_argument("--train-file", type=Path, required=True)
    parser.add_argument("--steps", type=int, default=12)
    parser.add_argument("--out", type=Path, default=out)
    parser.add_argument("overrides", nargs="*", metavar="section.key=value")
    return parser


def dotted(arguments: argparse.Namespace, extra: Sequence[str] = ()) -> list[str]:
    """Return the settings of a measured run as dotted overrides: no fine-tuning, no checkpoint before the end."""
    return [
        f"model={arguments.model}",
        f"data.train_file={arguments.train_file}",
        f"data.val_file={arguments.train_file.with_name('val.parquet')}",
        "data.val_questions=8",
        "data.natural_questions=0",
        "sft.steps=0",
        f"train.steps={arguments.steps}",
        f"train.save_every={arguments.steps + 1}",
        *extra,
        *arguments.overrides,
    ]


def through_lightning(name: str, out: Path, overrides: Sequence[str]) -> list[Step]:
    """Train as run `name` under `out`, and return verl's metrics of each step from the third on."""
    command = [sys.executable, str(TRAIN), "--backend=verl", f"runs_dir={out}", f"run_name={name}", *overrides]
    subprocess.run(command, check=True)
    return steps_of(next((out / name).glob("verl-*.jsonl")))


def steps_of(path: Path) -> list[Step]:
    """Read the steps with a time from verl's metrics file, from the third step on, without those that save."""
    lines = [json.loads(line) for line in path.read_text().splitlines()]
    timed = [e["data"] for e in lines if e["step"] >= FIRST and "timing_s/step" in e["data"]]
    return [step for step in timed if "timing_s/save_checkpoint" not in step]


def median(steps: Sequence[Step], key: str) -> float:
    """Return the median of `key` over the steps; a step without it counts as 0."""
    return statistics.median(step.get(key, 0.0) for step in steps)
