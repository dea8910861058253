"""Measure throughput by GPUs and runners: python benchmarks/verl_scaling.py --model PATH --gpus 1 2 --runners 8 ...

It does one short run of train_sql_agent.py for each pair; the questions, the model and the rollouts a step are the same
in all. For each pair it prints the median seconds of a step and its stages, the rollouts a second and their ratio to
the first pair's, the share of the GPUs' peak (MFU), the lost rollouts, and how many cores each process kept busy.
"""

from __future__ import annotations

import argparse
import itertools
import json
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from verl_runs import arguments_parser, dotted, peak_shares, stage_seconds, through_lightning

from sql_agent.config.settings import load_settings
from sql_agent.training.verl.config import defaults


def main() -> None:
    """Measure every pair, and print each as soon as it has ended."""
    arguments = parsed()
    results: list[dict[str, Any]] = []
    for gpus, runners in itertools.product(arguments.gpus, arguments.runners):
        results.append(measured(gpus, runners, arguments))
        show(results[-1], results[0])
        (arguments.out / "result.json").write_text(json.dumps(results, indent=2))


def parsed(given: Sequence[str] | None = None) -> argparse.Namespace:
    """Parse the arguments `given`, or else those of the command line."""
    parser = arguments_parser(__doc__, out=Path("runs/verl-scaling"))
    parser.add_argument("--gpus", type=int, nargs="+", default=[1])
    parser.add_argument("--runners", type=int, nargs="+", default=[8])
    return parser.parse_intermixed_args(given)


def run_settings(gpus: int, runners: int, arguments: argparse.Namespace) -> list[str]:
    """Return the dotted overrides of one pair's run."""
    return dotted(arguments, [f"verl.n_gpus={gpus}", f"runner.n_runners={runners}"])


def measured(gpus: int, runners: int, arguments: argparse.Namespace) -> dict[str, Any]:
    """Run one pair, and return its medians, its lost rollouts and its busy processes."""
    overrides = run_settings(gpus, runners, arguments)
    train = load_settings(overrides, defaults=defaults("medical")).train
    rollouts = train.questions_per_step * train.group_size
    run = through_lightning(f"gpus{gpus}-runners{runners}", arguments.out, overrides)
    seconds = stage_seconds(run.steps)
    return {
        "gpus": gpus,
        "runners": runners,
        "steps": len(run.steps),
        "rollouts_per_step": rollouts,
        "rollouts_per_s": rollouts / seconds["step"],
        "lost": run.lost,
        "seconds": seconds,
        **peak_shares(run.steps),
        "processes": [asdict(load) for load in run.processes],
    }


def show(result: dict[str, Any], first: dict[str, Any]) -> None:
    """Print one pair's result beside the first one's rate."""
    print(
        f"{result['gpus']} GPUs, {result['runners']} runners: {result['rollouts_per_s']:.1f} rollouts/s, "
        f"{result['rollouts_per_s'] / first['rollouts_per_s']:.2f} times the first; "
        f"{result['rollouts_per_step']} a step, {result['lost']} lost in all; median of {result['steps']} steps"
    )
    print("  seconds: " + ", ".join(f"{stage} {value:.2f}" for stage, value in result["seconds"].items()))
    print(f"  MFU: {result['mfu_update']:.1%} in the update, {result['mfu_step']:.1%} in the step")
    for load in result["processes"]:
        print(
            f"  {load['cores']:6.2f} cores, busiest thread {load['busiest_thread']:4.0%}: "
            f"{load['name']} ({load['count']})",
            flush=True,
        )


if __name__ == "__main__":
    main()
