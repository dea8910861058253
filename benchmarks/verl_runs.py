"""Run train_sql_agent.py and read its metrics, for the benchmarks of the verl backend."""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
import sys
import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import psutil

TRAIN = Path(__file__).resolve().parents[1] / "sql_agent" / "train_sql_agent.py"
FIRST = 3  # the first two steps compile and fill caches
STAGES = ("gen", "old_log_prob", "adv", "update_actor", "update_weights")
_POLL_S = 0.2
_LEAST = 0.02  # processes that keep fewer cores busy are not listed

Step = dict[str, float]


@dataclass(frozen=True)
class ProcessLoad:
    """The cores that processes of one name kept busy during the steps, and the share of one of their busiest thread."""

    name: str
    count: int
    cores: float
    busiest_thread: float


@dataclass(frozen=True)
class MeasuredRun:
    """The metrics of each step from the third on, the rollouts lost in all steps, and the busy processes."""

    steps: list[Step]
    lost: int
    processes: list[ProcessLoad]


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


def through_lightning(name: str, out: Path, overrides: Sequence[str]) -> MeasuredRun:
    """Train as run `name` under `out`, and return what was measured. Raises CalledProcessError if the run fails."""
    command = [sys.executable, str(TRAIN), "--backend=verl", f"runs_dir={out}", f"run_name={name}", *overrides]
    metrics = out / name / "metrics.jsonl"
    with subprocess.Popen(command) as process:
        processes = _watched(process, metrics)
    if process.returncode:
        raise subprocess.CalledProcessError(process.returncode, command)
    lost = sum(json.loads(line)["rollouts/failed"] for line in metrics.read_text().splitlines())
    return MeasuredRun(steps_of(metrics), int(lost), processes)


def steps_of(path: Path) -> list[Step]:
    """Read timed steps from a run's or verl's metrics file: from the third on, without steps that save a checkpoint."""
    lines = [json.loads(line) for line in path.read_text().splitlines()]
    timed = [e.get("data", e) for e in lines if e["step"] >= FIRST]
    return [step for step in timed if "timing_s/step" in step and "timing_s/save_checkpoint" not in step]


def median(steps: Sequence[Step], key: str) -> float:
    """Return the median of `key` over the steps; a step without it counts as 0."""
    return statistics.median(step.get(key, 0.0) for step in steps)


def stage_seconds(steps: Sequence[Step]) -> dict[str, float]:
    """Return the median seconds of a step and of each stage."""
    return {stage: median(steps, f"timing_s/{stage}") for stage in ("step", *STAGES)}


def peak_shares(steps: Sequence[Step]) -> dict[str, float]:
    """Return the share of the training GPUs' peak (MFU) that the update's FLOPs are, in the update and in the step."""
    update = median(steps, "perf/mfu/actor")
    seconds = stage_seconds(steps)
    return {"mfu_update": update, "mfu_step": update * seconds["update_actor"] / seconds["step"]}


def _watched(process: subprocess.Popen[bytes], metrics: Path) -> list[ProcessLoad]:
    """Wait until `process` ends; return its and its descendants' loads, from step FIRST to the last but one."""
    snapshots: list[_Snapshot] = []
    steps = 0
    while process.poll() is None:
        time.sleep(_POLL_S)
        done = metrics.read_bytes().count(b"\n") if metrics.exists() else 0
        if done > steps and done >= FIRST - 1:
            snapshots.append(_snapshot(process.pid))
        steps = done
    return _loads(snapshots[0], snapshots[-2]) if len(snapshots) > 2 else []  # the last is taken while processes end


@dataclass(frozen=True)
class _Snapshot:
    time: float
    names: dict[int, str]  # by process
    seconds: dict[int, dict[int, float]]  # CPU time by process and thread


def _snapshot(root: int) -> _Snapshot:
    now, names, seconds = time.monotonic(), {}, {}
    for process in [psutil.Process(root), *psutil.Process(root).children(recursive=True)]:
        with suppress(psutil.NoSuchProcess, psutil.ZombieProcess):
            threads = {thread.id: thread.user_time + thread.system_time for thread in process.threads()}
            names[process.pid], seconds[process.pid] = _name(process, root), threads
    return _Snapshot(now, names, seconds)


def _name(process: psutil.Process, root: int) -> str:
    """Name a process by its module or script, or by its title, such as ray::TaskRunner.run or VLLM::EngineCore."""
    if process.pid == root:
        return "store, scheduler"
    words = [word for word in process.cmdline() if word.strip() and not word.startswith("-")]
    name = Path(words[min(1, len(words) - 1)]).name if words else process.name()
    return "runner or proxy" if name == TRAIN.name else name.strip()[:40]


def _loads(first: _Snapshot, last: _Snapshot) -> list[ProcessLoad]:
    """Add the cores that processes of one name kept busy; the process with the busiest thread comes first."""
    loads: dict[str, ProcessLoad] = {}
    for pid, threads in last.seconds.items():
        before = first.seconds.get(pid, {})
        cores = [(used - before.get(thread, 0.0)) / (last.time - first.time) for thread, used in threads.items()]
        same = loads.get(last.names[pid], ProcessLoad(last.names[pid], 0, 0.0, 0.0))
        loads[same.name] = ProcessLoad(
            same.name, same.count + 1, same.cores + sum(cores), max([same.busiest_thread, *cores])
        )
    busy = [load for load in loads.values() if load.cores >= _LEAST]
    return sorted(busy, key=lambda load: -load.busiest_thread)
