"""Send what a run writes to its trackers, each in its own thread, so that none of them can stop or delay the run."""

from __future__ import annotations

import hashlib
import importlib.util
import queue
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from sql_agent.config.endpoints import AgentOpsSettings
from sql_agent.config.settings import Settings, public_dump
from sql_agent.errors import ConfigError
from sql_agent.runs.run_info import read_info
from sql_agent.runs.tracker_services import (
    RolloutLine,
    TrackedRun,
    Tracker,
    open_swanlab,
    open_tensorboard,
    open_wandb,
)

Say = Callable[[str], None]

_PACKAGES = {"wandb": "wandb", "swanlab": "swanlab", "tensorboard": "tensorboardX"}
_CLOSE_S = 120.0  # for all trackers together to send the rest at the end of a run


def check_trackers(settings: Settings) -> None:
    """Raise ConfigError when the package of a tracker in `tracking.to` is not installed."""
    missing = [name for name in settings.tracking.to if importlib.util.find_spec(_PACKAGES[name]) is None]
    if missing:
        packages = " ".join(_PACKAGES[name] for name in missing)
        raise ConfigError(
            f"tracking.to names {', '.join(missing)}, and the package {packages.replace(' ', ', ')} is not installed",
            hint=f"pip install {packages}",
        )


class Trackers:
    """Sends metrics and rollouts to the trackers of the settings; without trackers it does nothing.

    A tracker starts with the first thing that it is sent. If a tracker fails, the failure is reported once with `say`,
    and that tracker is sent nothing more.
    """

    def __init__(self, settings: Settings, folder: Path, say: Say) -> None:
        names = [*settings.tracking.to, *(["agentops"] if AgentOpsSettings().api_key else [])]
        run = _tracked_run(settings, folder)
        self._threads = [_TrackerThread(name, run, say) for name in names]
        self._table_rows = settings.tracking.rollouts
        self._say = say

    def metrics(self, step: int, values: Mapping[str, float]) -> None:
        """Send metrics, whose names begin with `train/` or `val/SET/`."""
        self._send(lambda tracker: tracker.metrics(step, values))

    def rollouts(self, step: int, mode: str, rollouts: Sequence[RolloutLine]) -> None:
        """Send the first `tracking.rollouts` rollouts of a step as a table."""
        some = rollouts[: self._table_rows]
        if some:
            self._send(lambda tracker: tracker.table(step, f"{mode}/rollouts", some))

    def close(self) -> None:
        """Wait until the trackers have sent everything, for at most two minutes."""
        deadline = time.monotonic() + _CLOSE_S
        started = [thread for thread in self._threads if thread.ident is not None]
        for thread in started:
            thread.calls.put(None)
        for thread in started:
            thread.join(max(0.0, deadline - time.monotonic()))
            if thread.is_alive():
                self._say(f"Tracker {thread.name} is still sending after {_CLOSE_S:.0f} s and is left behind")

    def _send(self, call: Callable[[Tracker], None]) -> None:
        for thread in self._threads:
            if thread.ident is None:  # not earlier, because runners are forked before anything is sent
                thread.start()
            thread.calls.put(call)


class _TrackerThread(threading.Thread):
    """Opens a tracker, makes the `calls` in order, and closes it at None."""

    def __init__(self, name: str, tracked: TrackedRun, say: Say) -> None:
        super().__init__(name=name, daemon=True)
        self._tracked = tracked
        self._say = say
        self.calls: queue.SimpleQueue[Callable[[Tracker], None] | None] = queue.SimpleQueue()

    def run(self) -> None:
        try:
            tracker = _open(self.name, self._tracked)
            while (call := self.calls.get()) is not None:
                call(tracker)
            tracker.close()
        except BaseException as error:
            self._say(f"Tracker {self.name} failed and gets nothing more of this run: {type(error).__name__}: {error}")


def _open(name: str, run: TrackedRun) -> Tracker:
    if name == "agentops":
        from sql_agent.runs.agentops_spans import open_agentops  # noqa: PLC0415  slow to import

        return open_agentops(run)
    return {"wandb": open_wandb, "swanlab": open_swanlab, "tensorboard": open_tensorboard}[name](run)


def _tracked_run(settings: Settings, folder: Path) -> TrackedRun:
    sessions = read_info(folder).sessions
    started = sessions[0].started if sessions else ""
    about: dict[str, Any] = {"commit": sessions[-1].commit, "versions": sessions[-1].versions} if sessions else {}
    return TrackedRun(
        name=folder.resolve().name,
        id=hashlib.sha256(f"{folder.resolve()} {started}".encode()).hexdigest()[:12],
        project=settings.tracking.project,
        config=public_dump(settings) | about,
        files=folder / "tracking",
    )
