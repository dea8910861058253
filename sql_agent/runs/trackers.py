"""Send a run's metrics and rollouts to Weights & Biases, SwanLab, TensorBoard or AgentOps.

Each tracker has a thread, which also imports the tracker's library, so that a tracker that fails or hangs cannot stop
or delay the run.
"""

from __future__ import annotations

import hashlib
import importlib.util
import os
import queue
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import Any, NamedTuple

from sql_agent.config.endpoints import AgentOpsSettings
from sql_agent.config.settings import Settings, public_dump
from sql_agent.errors import ConfigError, TrainingError
from sql_agent.runs.run_folder import read_sessions

RolloutLine = Mapping[str, Any]  # a line of rollouts.jsonl

_PACKAGES = {"wandb": "wandb", "swanlab": "swanlab", "tensorboard": "tensorboardX"}
_COLUMNS = ("step", "set", "question", "sql", "answer", "reference", "reward", "judge", "advantage", "outcome")
_TABLE_ROWS = 32  # maximum number of rollouts per table
_SFT_LOSS = "sft/loss"
_OPEN_S = 60  # time limit for connecting to Weights & Biases
_CLOSE_S = 120.0  # time limit for sending the last data at the end of a run


class TrackedRun(NamedTuple):
    """A run as trackers see it: `files` is the folder for their files; a resumed run keeps its `id`."""

    name: str
    id: str
    project: str
    config: dict[str, Any]
    files: Path

    @property
    def known(self) -> dict[str, Any]:
        """The arguments of both `wandb.init` and `swanlab.init`."""
        return {"project": self.project, "name": self.name, "id": self.id, "config": self.config, "resume": "allow"}


class Tracker(NamedTuple):
    """The functions of a tracker, which may raise any error of the tracker's library.

    `metrics(step, values)` sends metrics such as `train/reward/mean`. `table(step, name, rollouts)` sends rollouts as
    the table `train/rollouts` or `val/rollouts`. `losses(values)` sends the loss of each step of supervised fine-tuning
    as `sft/loss`, before any other metric; if `losses` is None, `metrics` sends the losses.
    """

    metrics: Callable[[int, Mapping[str, float]], None]
    table: Callable[[int, str, Sequence[RolloutLine]], None]
    losses: Callable[[Sequence[float]], None] | None = None


def check_trackers(settings: Settings) -> None:
    missing = [name for name in settings.tracking.to if importlib.util.find_spec(_PACKAGES[name]) is None]
    if missing:
        packages = [_PACKAGES[name] for name in missing]
        raise ConfigError(
            f"tracking.to names {', '.join(missing)}, and the package {', '.join(packages)} is not installed",
            hint=f"pip install {' '.join(packages)}",
        )


class Trackers:
    """Sends metrics and rollouts to the trackers in `settings`.

    If a tracker fails, `say` reports the failure, and the tracker gets no more data.
    """

    def __init__(self, settings: Settings, folder: Path, say: Callable[[str], None]) -> None:
        names = [*settings.tracking.to, *(["agentops"] if AgentOpsSettings().api_key else [])]
        sessions = read_sessions(folder)
        started = sessions[0].started if sessions else ""
        versions = {"commit": sessions[-1].commit, "versions": sessions[-1].versions} if sessions else {}
        run = TrackedRun(
            name=folder.resolve().name,
            id=hashlib.sha256(f"{folder.resolve()} {started}".encode()).hexdigest()[:12],
            project=settings.tracking.project,
            config=public_dump(settings) | versions,
            files=folder / "tracking",
        )
        self._threads = [_TrackerThread(name, run, say) for name in names]
        self._say = say

    def metrics(self, step: int, values: Mapping[str, float]) -> None:
        self._send(lambda tracker: tracker.metrics(step, values))

    def losses(self, values: Sequence[float]) -> None:
        def send(tracker: Tracker) -> None:
            if tracker.losses:
                tracker.losses(values)
            else:
                for step, loss in enumerate(values, 1):
                    tracker.metrics(step, {_SFT_LOSS: loss})

        if values:
            self._send(send)

    def rollouts(self, step: int, mode: str, rollouts: Sequence[RolloutLine]) -> None:
        if some := rollouts[:_TABLE_ROWS]:
            self._send(lambda tracker: tracker.table(step, f"{mode}/rollouts", some))

    def close(self) -> None:
        """Wait until the trackers have sent all data, at most two minutes."""
        deadline = time.monotonic() + _CLOSE_S
        started = [thread for thread in self._threads if thread.ident is not None]
        for thread in started:
            thread.calls.put(None)
        for thread in started:
            thread.join(max(0.0, deadline - time.monotonic()))
            if thread.is_alive():
                self._say(f"Tracker {thread.name} is still sending after {_CLOSE_S:.0f} s; the run ends without it")

    def _send(self, call: Callable[[Tracker], None]) -> None:
        for thread in self._threads:
            if thread.ident is None:  # started here, because a thread does not survive the fork of the runners
                thread.start()
            thread.calls.put(call)


class _TrackerThread(threading.Thread):
    """Opens a tracker, makes `calls` in order, and closes the tracker after None."""

    def __init__(self, name: str, tracked: TrackedRun, say: Callable[[str], None]) -> None:
        super().__init__(name=name, daemon=True)
        self._tracked = tracked
        self._say = say
        self.calls: queue.SimpleQueue[Callable[[Tracker], None] | None] = queue.SimpleQueue()

    def run(self) -> None:
        try:
            with _open(self.name, self._tracked) as tracker:
                while (call := self.calls.get()) is not None:
                    call(tracker)
        except BaseException as error:
            self._say(f"Tracker {self.name} failed and receives nothing more: {type(error).__name__}: {error}")


def _open(name: str, run: TrackedRun) -> AbstractContextManager[Tracker]:
    if name == "agentops":
        from sql_agent.runs.agentops_spans import open_agentops  # noqa: PLC0415  slow to import

        return open_agentops(run)
    return {"wandb": _open_wandb, "swanlab": open_swanlab, "tensorboard": _open_tensorboard}[name](run)


@contextmanager
def _open_wandb(run: TrackedRun) -> Iterator[Tracker]:
    """Open a run at Weights & Biases; with WANDB_MODE=offline, write files for `wandb sync` instead."""
    import wandb  # noqa: PLC0415

    offline = os.environ.get("WANDB_MODE") in {"offline", "dryrun"}
    if not offline and not wandb.api.api_key:
        raise TrainingError("Weights & Biases has no API key", hint="run `wandb login`, or set WANDB_MODE=offline")
    wandb.setup(wandb.Settings(silent=True))
    run.files.mkdir(parents=True, exist_ok=True)
    # These settings send no data about the machine and its user; commit and versions are in the config.
    settings = wandb.Settings(
        silent=True, console="off", init_timeout=_OPEN_S, disable_git=True, disable_code=True,
        x_disable_meta=True, x_disable_machine_info=True, x_disable_stats=True,
    )  # fmt: skip
    opened = wandb.init(
        **run.known,
        dir=str(run.files),
        mode="offline" if offline else None,  # the mode is passed, because wandb remembers that of an earlier run
        settings=settings,
    )

    def losses(values: Sequence[float]) -> None:  # a chart at step 0, because wandb's steps must not decrease
        drawn = wandb.Table(columns=["step", "loss"], data=[list(pair) for pair in enumerate(values, 1)])
        opened.log({_SFT_LOSS: wandb.plot.line(drawn, "step", "loss", title=_SFT_LOSS)}, step=0)

    yield Tracker(
        metrics=lambda step, values: opened.log(dict(values), step=step),
        losses=losses,
        table=lambda step, name, rollouts: opened.log(
            {name: wandb.Table(columns=list(_COLUMNS), data=[*map(_row, rollouts)])}, step=step
        ),
    )
    opened.finish()
    wandb.teardown()  # `finish` can return before an offline run is on the disk


@contextmanager
def open_swanlab(run: TrackedRun) -> Iterator[Tracker]:
    """Open a run at SwanLab; with SWANLAB_MODE=offline, write files for `swanlab sync` instead."""
    import swanlab  # noqa: PLC0415
    from swanlab import echarts  # noqa: PLC0415

    # Sends no data about the machine and its user, and no text of the terminal.
    off = dict.fromkeys(("hardware", "runtime", "requirements", "conda", "git", "monitor"), False)
    settings = swanlab.Settings.model_validate({"interactive": False, "probe": off, "terminal": {"proxy_type": "none"}})
    opened = swanlab.init(**run.known, log_dir=str(run.files / "swanlab"), settings=settings)

    def table(step: int, name: str, rollouts: Sequence[RolloutLine]) -> None:
        drawn = echarts.Table()
        drawn.add(list(_COLUMNS), list(map(_row, rollouts)))
        opened.log({name: drawn}, step=step)

    yield Tracker(lambda step, values: opened.log(dict(values), step=step), table)
    opened.finish()


@contextmanager
def _open_tensorboard(run: TrackedRun) -> Iterator[Tracker]:
    """Write metrics, and rollouts as Markdown tables, to the run's folder `tracking/tensorboard`."""
    from tensorboardX import SummaryWriter  # noqa: PLC0415

    writer = SummaryWriter(str(run.files / "tensorboard"), write_to_disk=True)
    writer.add_text("config", "\n".join(f"    {name}: {value}" for name, value in run.config.items()))

    def metrics(step: int, values: Mapping[str, float]) -> None:
        for name, value in values.items():
            writer.add_scalar(name, value, step)
        writer.flush()

    def table(step: int, name: str, rollouts: Sequence[RolloutLine]) -> None:
        rows = [_COLUMNS, ["---"] * len(_COLUMNS), *map(_row, rollouts)]
        lines = ["| " + " | ".join(map(_markdown_cell, row)) + " |" for row in rows]
        writer.add_text(name, "\n".join(lines), step)

    yield Tracker(metrics, table)
    writer.close()


def _row(rollout: RolloutLine) -> list[str | int | float | None]:
    record = rollout["record"] or {}
    question, reward = record.get("question", {}), record.get("reward")
    return [
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


def _markdown_cell(cell: object) -> str:
    text = "" if cell is None else f"{cell:.3f}" if isinstance(cell, float) else str(cell)
    return text.replace("|", "\\|").replace("\n", " ")
