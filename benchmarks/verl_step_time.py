"""Compare the step time with verl's own tool agent loop: python benchmarks/verl_step_time.py --model PATH ...

Both runs train the same model with the same trainer options on the same questions in the same order, with the same
tool, database limits, prompts and sampling, one after the other on the same GPUs. verl's own loop runs the conversation
inside verl, without store, proxy, runner processes and agent framework. It trains on every group of rollouts, and its
forward pass is verl's, which computes the prompt of every rollout. Ours leaves out the groups with equal rewards, and
computes a shared prompt once; `--our-forward` gives our forward pass to verl's loop, too. It prints the median seconds
of a step and the share of each stage from the third step on, the share of the GPU's peak (MFU), and the ratio of the
two runs.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pandas as pd
from verl_runs import (
    Step,
    arguments_parser,
    dotted,
    median,
    peak_shares,
    stage_seconds,
    steps_of,
    through_lightning,
)

from sql_agent.config.settings import Settings, load_settings
from sql_agent.questions.question_files import load_questions
from sql_agent.tasks.task import load_task
from sql_agent.training.verl.config import defaults, verl_environment, verl_options
from sql_agent.training.verl.interprocess import typed, write_dataset

HERE = Path(__file__).resolve().parent
METRICS = "metrics.jsonl"


def main() -> None:
    """Do both runs and print the comparison."""
    arguments = parsed()
    overrides = run_settings(arguments)
    settings = load_settings(overrides, defaults=defaults("medical"))
    arguments.out.mkdir(parents=True, exist_ok=True)
    peer = in_process(settings, arguments.out / "in-process", our_forward=arguments.our_forward)
    ours = through_lightning("lightning", arguments.out, overrides)
    report(ours.steps, peer, settings, arguments.out)
    print(f"{ours.lost} rollouts lost through agent-lightning")


def parsed(given: Sequence[str] | None = None) -> argparse.Namespace:
    """Parse the arguments `given`, or else those of the command line."""
    parser = arguments_parser(__doc__, out=Path("runs/verl-step-time"))
    parser.add_argument("--questions", type=int, default=8, help="a step, eight rollouts each")
    parser.add_argument("--our-forward", action="store_true", help="verl's loop computes a shared prompt once, too")
    return parser.parse_intermixed_args(given)


def run_settings(arguments: argparse.Namespace) -> list[str]:
    """Return the dotted overrides of both runs."""
    return dotted(arguments, [f"train.questions_per_step={arguments.questions}"])


def in_process(settings: Settings, folder: Path, *, our_forward: bool) -> list[Step]:
    """Train with verl's own tool agent loop, and return verl's metrics of each step from the third on."""
    path = write_options(settings, folder, our_forward=our_forward)
    with (folder / "verl.log").open("w") as log:
        subprocess.run(
            [sys.executable, "-m", "sql_agent.training.verl.verl_main", str(path)],
            check=True, stdout=log, stderr=log, env=os.environ | json.loads(path.read_text())["environment"],
        )  # fmt: skip
    return steps_of(folder / METRICS)


def write_options(settings: Settings, folder: Path, *, our_forward: bool) -> Path:
    """Write the questions and the file from which `verl_main` reads the options of verl's own loop; return its path."""
    folder.mkdir(parents=True, exist_ok=True)
    assert settings.data.train_file is not None, "--train-file is required"
    questions = load_questions(settings.data.train_file)
    task = load_task(settings.task)
    with task.open_database(settings) as database:
        system = task.instructions(settings.lang, database, settings)
    for name in ("train", "val"):
        path = folder / "data" / f"{name}.parquet"
        write_dataset(questions if name == "train" else questions[:8], path, "train" if name == "train" else "val")
        frame = pd.read_parquet(path)
        frame["prompt"] = [[{"role": "system", "content": system}, *messages] for messages in frame["prompt"]]
        frame.to_parquet(path)
    options = verl_options(settings, run=folder.resolve(), rollout_server="", resume=False)
    rollout = options["actor_rollout_ref"]["rollout"]
    rollout["agent"] = {"default_agent_loop": "tool_agent", "num_workers": 8}  # verl's default; here they do the work
    rollout["multi_turn"] = {
        "enable": True,
        "max_assistant_turns": settings.agent.max_turns,
        "max_tool_response_length": 2 * settings.database.max_chars,
        "function_tool_path": str(HERE / "verl_tool.py"),
        "format": "hermes",
    }
    if not our_forward:
        options["actor_rollout_ref"]["model"]["external_lib"] = None
    options["reward"] = {"custom_reward_function": {"path": str(HERE / "verl_tool.py"), "name": "compute_score"}}
    overrides = typed(settings.verl.config)
    overrides["actor_rollout_ref"]["rollout"].pop("agent", None)
    # The same advantages under another name, with which our trainer leaves no group out of the update, as verl does.
    overrides["algorithm"]["adv_estimator"] = "grpo_vectorized"
    environment = verl_environment() | {
        "VERL_FILE_LOGGER_PATH": str((folder / METRICS).resolve()),
        "BENCH_DB": str(Path(str(settings.database.path)).resolve()),
    }
    path = folder / "verl.json"
    path.write_text(
        json.dumps({"options": options, "overrides": overrides, "sft_result": None, "environment": environment})
    )
    return path


def report(ours: list[Step], peer: list[Step], settings: Settings, out: Path) -> None:
    """Print medians and shares, and write them to result.json."""
    rollouts = settings.train.questions_per_step * settings.train.group_size
    result: dict[str, Any] = {"rollouts_per_step": rollouts, "steps": len(ours), "seed": settings.seed}
    print(f"{rollouts} rollouts a step, median of {len(ours)} steps, seconds (share)")
    seconds = stage_seconds(ours), stage_seconds(peer)
    for stage in seconds[0]:
        a, b = (half[stage] for half in seconds)
        result[stage] = {"lightning": a, "in_process": b}
        shares = f"({a / seconds[0]['step']:4.0%})", f"({b / seconds[1]['step']:4.0%})"
        print(f"{stage:16} through agent-lightning {a:6.2f} {shares[0]}   in-process {b:6.2f} {shares[1]}")
    mfu = peak_shares(ours), peak_shares(peer)
    for name in mfu[0]:
        result[name] = {"lightning": mfu[0][name], "in_process": mfu[1][name]}
        print(f"{name:16} through agent-lightning {mfu[0][name]:6.1%}          in-process {mfu[1][name]:6.1%}")
    for key in ("perf/total_num_tokens", "num_turns/mean"):
        result[key] = {"lightning": median(ours, key), "in_process": median(peer, key)}
        print(f"{key:24} {result[key]['lightning']:10.1f} {result[key]['in_process']:10.1f}")
    result["informative"] = median(ours, "groups/informative")
    print(f"rewards differ in {result['informative']:.0%} of the groups; ours trains on these, in-process on all")
    result["ratio"] = result["step"]["lightning"] / result["step"]["in_process"]
    print(f"ratio of step times: {result['ratio']:.2f}")
    (out / "result.json").write_text(json.dumps(result, indent=2))


if __name__ == "__main__":
    main()
