"""Open a run at Weights & Biases, SwanLab or TensorBoard, whose libraries are imported only here and when needed."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

from sql_agent.errors import TrainingError

RolloutLine = Mapping[str, Any]  # a line of rollouts.jsonl

_COLUMNS = ("step", "set", "question", "sql", "answer", "reference", "reward", "judge", "advantage", "outcome")
_TIMEOUT_S = 60


@dataclass(frozen=True)
class TrackedRun:
    """What a tracker knows of a run. `files` is the folder to write in; a resumed run keeps its `id`."""

    name: str
    id: str
    project: str
    config: Mapping[str, Any]
    files: Path


class Tracker(NamedTuple):
    """One run at one service. Each function may raise whatever the service's library raises.

    `metrics(step, values)` sends metrics with names such as `train/reward/mean`, `table(step, name, rollouts)` sends
    rollouts as a table `train/rollouts` or `val/rollouts`, and `close()` sends the rest.
    """

    metrics: Callable[[int, Mapping[str, float]], None]
    table: Callable[[int, str, Sequence[RolloutLine]], None]
    close: Callable[[], None]


def open_wandb(run: TrackedRun) -> Tracker:
    """Start a run at Weights & Biases; WANDB_MODE=offline writes files for `wandb sync`.

    Raises TrainingError when there is no key, because wandb would ask for one and wait.
    """
    import wandb  # noqa: PLC0415

    offline = os.environ.get("WANDB_MODE") in {"offline", "dryrun"}
    if not offline and not wandb.api.api_key:
        raise TrainingError("there is no key", hint="run `wandb login`, or set WANDB_MODE=offline")
    wandb.setup(wandb.Settings(silent=True))
    run.files.mkdir(parents=True, exist_ok=True)
    # Without what wandb finds out by itself of the machine and its user: the config has commit and versions.
    settings = wandb.Settings(
        silent=True, console="off", init_timeout=_TIMEOUT_S, disable_git=True, disable_code=True,
        x_disable_meta=True, x_disable_machine_info=True, x_disable_stats=True,
    )  # fmt: skip
    opened = wandb.init(
        project=run.project,
        name=run.name,
        id=run.id,
        resume="allow",
        config=dict(run.config),
        dir=str(run.files),
        mode="offline" if offline else None,  # named, because an earlier run of this process may have set another mode
        settings=settings,
    )

    def close() -> None:
        opened.finish()
        wandb.teardown()  # finish alone was seen to return before an offline run was on the disk

    return Tracker(
        metrics=lambda step, values: opened.log(dict(values), step=step),
        table=lambda step, name, rollouts: opened.log(
            {name: wandb.Table(columns=list(_COLUMNS), data=[*_cells(rollouts)])}, step=step
        ),
        close=close,
    )


def open_swanlab(run: TrackedRun) -> Tracker:
    """Start a run at SwanLab; SWANLAB_MODE=offline writes files for `swanlab sync`."""
    import swanlab  # noqa: PLC0415
    from swanlab import echarts  # noqa: PLC0415

    # Without what SwanLab finds out by itself of the machine and its user, and without the terminal's text.
    off = dict.fromkeys(("hardware", "runtime", "requirements", "conda", "git", "monitor"), False)
    settings = swanlab.Settings.model_validate({"interactive": False, "probe": off, "terminal": {"proxy_type": "none"}})
    opened = swanlab.init(
        project=run.project,
        name=run.name,
        id=run.id,
        resume="allow",
        config=dict(run.config),
        log_dir=str(run.files / "swanlab"),
        settings=settings,
    )

    def table(step: int, name: str, rollouts: Sequence[RolloutLine]) -> None:
        drawn = echarts.Table()
        drawn.add(list(_COLUMNS), _cells(rollouts))
        opened.log({name: drawn}, step=step)

    return Tracker(metrics=lambda step, values: opened.log(dict(values), step=step), table=table, close=opened.finish)


def open_tensorboard(run: TrackedRun) -> Tracker:
    """Write metrics, and rollouts as a Markdown table, into `tracking/tensorboard` of the run."""
    from tensorboardX import SummaryWriter  # noqa: PLC0415

    writer = SummaryWriter(str(run.files / "tensorboard"), write_to_disk=True)
    writer.add_text("config", "\n".join(f"    {name}: {value}" for name, value in run.config.items()))

    def metrics(step: int, values: Mapping[str, float]) -> None:
        for name, value in values.items():
            writer.add_scalar(name, value, step)
        writer.flush()

    def table(step: int, name: str, rollouts: Sequence[RolloutLine]) -> None:
        rows = [_COLUMNS, ["---"] * len(_COLUMNS), *_cells(rollouts)]
        lines = ["| " + " | ".join(map(_markdown_cell, row)) + " |" for row in rows]
        writer.add_text(name, "\n".join(lines), step)

    return Tracker(metrics=metrics, table=table, close=writer.close)


def _cells(rollouts: Sequence[RolloutLine]) -> list[list[str | int | float | None]]:
    """Return a row with the cells of `_COLUMNS` for each rollout."""
    rows: list[list[str | int | float | None]] = []
    for rollout in rollouts:
        record = rollout["record"] or {}
        question, reward = record.get("question", {}), record.get("reward")
        rows.append(
            [
                rollout["step"],
                rollout.get("val_set") or rollout["mode"],
                question.get("question"),
                ";\n".join(call["sql"] for call in record.get("calls", ())),
                record.get("answer"),
                question.get("answer"),
                reward["rule"] + reward["judge"] if reward else None,
                reward["judge"] if reward else None,
                rollout.get("advantage"),
                f"dropped: {rollout['dropped']['cause']}" if rollout["dropped"] else record.get("outcome"),
            ]
        )
    return rows


def _markdown_cell(cell: object) -> str:
    text = "" if cell is None else f"{cell:.3f}" if isinstance(cell, float) else str(cell)
    return text.replace("|", "\\|").replace("\n", " ")
