"""Run trackers beside a training: each in a thread of its own, so that none can stop or delay the run."""

from __future__ import annotations

import hashlib
import importlib.util
import queue
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from importlib import import_module
from pathlib import Path
from typing import Any

from sql_agent.config.settings import AgentOpsSettings, Settings, public_dump
from sql_agent.errors import ConfigError
from sql_agent.runs.run_info import read_info
from sql_agent.runs.trackers.base import Row, TrackedRun, Tracker

Say = Callable[[str], None]

_PACKAGES = {"wandb": "wandb", "swanlab": "swanlab", "tensorboard": "tensorboardX", "agentops": "opentelemetry"}
_CLOSE_S = 120.0  # that the trackers may take, all together, to send what is left at the end of a run


def check_trackers(settings: Settings) -> None:
    """Raise ConfigError when the package of a tracker in `tracking.to` is not installed."""
    missing = [name for name in settings.tracking.to if importlib.util.find_spec(_PACKAGES[name]) is None]
    if missing:
        raise ConfigError(
            f"tracking.to names {', '.join(missing)}, and that is not installed",
            hint='pip install ".[tracking]", or leave it out',
        )


class Trackers:
    """Hands what a run writes to the trackers of its settings; with none of them it does nothing.

    A tracker starts with the first thing that it is given, in a thread of its own. One that fails is reported once
    with `say` and given nothing more.
    """

    def __init__(self, settings: Settings, folder: Path, say: Say) -> None:
        self._settings = settings.tracking
        names = [*settings.tracking.to, *(["agentops"] if AgentOpsSettings().api_key else [])]
        run = _tracked_run(settings, folder)
        self._threads = [_TrackerThread(name, run, say) for name in names]
        self._say = say

    def metrics(self, step: int, values: Mapping[str, float]) -> None:
        """Send the metrics of a training step, with the prefix `train/`."""
        named = {f"train/{name}": value for name, value in values.items()}
        self._send(lambda tracker: tracker.metrics(step, named))

    def validation(self, step: int, values: Mapping[str, float]) -> None:
        """Send the metrics of a validation, whose names begin with `val/SET/`."""
        self._send(lambda tracker: tracker.metrics(step, values))

    def rollouts(self, step: int, mode: str, rollouts: Sequence[Row]) -> None:
        """Send rollouts of a step, `tracking.rollouts` of them."""
        some = rollouts[: self._settings.rollouts]
        if some:
            self._send(lambda tracker: tracker.rollouts(step, f"{mode}/rollouts", some))

    def close(self, model: Path | None = None) -> None:
        """Send the folder `model` where `tracking.checkpoint` asks for it, and wait until all is sent."""
        if model is not None and self._settings.checkpoint:
            self._send(lambda tracker: tracker.checkpoint(model))
        deadline = time.monotonic() + _CLOSE_S
        for thread in self._threads:
            thread.close()
        for thread in self._threads:
            thread.join(max(0.0, deadline - time.monotonic()))
            if thread.is_alive():
                self._say(f"Tracker {thread.name} is still sending after {_CLOSE_S:.0f} s and is left behind")

    def _send(self, call: Callable[[Tracker], None]) -> None:
        for thread in self._threads:
            thread.send(call)


class _TrackerThread(threading.Thread):
    """Opens a tracker at the first call, makes the calls in order, and closes it."""

    def __init__(self, name: str, run: TrackedRun, say: Say) -> None:
        super().__init__(name=name, daemon=True)
        self._run_of = run
        self._say = say
        self._calls: queue.SimpleQueue[Callable[[Tracker], None] | None] = queue.SimpleQueue()

    def send(self, call: Callable[[Tracker], None]) -> None:
        # Started only now, because the processes of the runners are forked before anything is sent.
        if self.ident is None:
            self.start()
        self._calls.put(call)

    def close(self) -> None:
        self._calls.put(None)

    def join(self, timeout: float | None = None) -> None:
        if self.ident is not None:
            super().join(timeout)

    def run(self) -> None:
        try:
            tracker = _open(self.name, self._run_of)
            while (call := self._calls.get()) is not None:
                call(tracker)
            tracker.close()
        except BaseException as error:
            self._say(f"Tracker {self.name} failed and gets nothing more of this run: {type(error).__name__}: {error}")


def _open(name: str, run: TrackedRun) -> Tracker:
    module = import_module(f"sql_agent.runs.trackers.{name}_tracker")
    tracker: Tracker = getattr(module, f"{name.capitalize()}Tracker")(run)
    return tracker


def _tracked_run(settings: Settings, folder: Path) -> TrackedRun:
    sessions = read_info(folder).sessions
    started = sessions[0].started if sessions else ""
    about: dict[str, Any] = {"commit": sessions[-1].commit, "versions": sessions[-1].versions} if sessions else {}
    return TrackedRun(
        folder=folder,
        name=folder.resolve().name,
        id=hashlib.sha256(f"{folder.resolve()} {started}".encode()).hexdigest()[:12],
        project=settings.tracking.project,
        config=public_dump(settings) | about,
        offline=settings.tracking.offline,
    )
