"""Measure throughput by GPUs and runners: python benchmarks/verl_scaling.py --model PATH --gpus 1 2 --runners 8 ...

It does one short run of train_sql_agent.py for each pair; the questions, the model and the rollouts a step are the same
in all. It prints the median seconds of a step, its rollouts and its update, and the rollouts a second with their ratio
to the first pair's.
"""

from __future__ import annotations

import argparse
import itertools
import json
from pathlib import Path
from typing import Any

from verl_runs import arguments_parser, dotted, median, through_lightning

from sql_agent.config.settings import load_settings
from sql_agent.training.verl.config import defaults


def main() -> None:
    """Run every pair and print the table."""
    parser = arguments_parser(__doc__, out=Path("runs/verl-scaling"))
    parser.add_argument("--gpus", type=int, nargs="+", default=[1])
    parser.add_argument("--runners", type=int, nargs="+", default=[8])
    arguments = parser.parse_intermixed_args()
    train = load_settings(arguments.overrides, defaults=defaults("medical")).train
    rollouts = train.questions_per_step * train.group_size
    results = [
        measured(gpus, runners, rollouts, arguments)
        for gpus, runners in itertools.product(arguments.gpus, arguments.runners)
    ]
    print(f"{rollouts} rollouts a step, median of the steps from the third on")
    for result in results:
        print(
            f"{result['gpus']} GPUs, {result['runners']} runners: step {result['step']:6.2f} s, "
            f"rollouts {result['gen']:6.2f} s, update {result['update_actor']:6.2f} s, "
            f"{result['rollouts_per_s']:6.1f} rollouts/s, "
            f"{result['rollouts_per_s'] / results[0]['rollouts_per_s']:4.2f} times the first"
        )
    (arguments.out / "result.json").write_text(json.dumps(results, indent=2))


def measured(gpus: int, runners: int, rollouts: int, arguments: argparse.Namespace) -> dict[str, Any]:
    """Run one pair, and return its median seconds by stage and its rollouts a second."""
    overrides = dotted(arguments, [f"verl.n_gpus={gpus}", f"runner.n_runners={runners}"])
    steps = through_lightning(f"gpus{gpus}-runners{runners}", arguments.out, overrides)
    seconds = {name: median(steps, f"timing_s/{name}") for name in ("step", "gen", "update_actor", "update_weights")}
    rate = rollouts / seconds["step"]
    return {"gpus": gpus, "runners": runners, "steps": len(steps), **seconds, "rollouts_per_s": rate}


if __name__ == "__main__":
    main()
