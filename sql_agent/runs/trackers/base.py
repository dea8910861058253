"""Define what a tracker is given: metrics, rollouts and a checkpoint of one run."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

Row = Mapping[str, Any]  # a line of rollouts.jsonl
Cell = str | int | float | None

TABLE_COLUMNS = ("step", "set", "question", "sql", "answer", "reference", "reward", "judge", "advantage", "outcome")


@dataclass(frozen=True)
class TrackedRun:
    """Holds what a tracker needs to know of a run: its folder, a name, an id that a resumed run keeps, its settings."""

    folder: Path
    name: str
    id: str
    project: str
    config: Mapping[str, Any]
    offline: bool

    @property
    def files(self) -> Path:
        """The folder in which trackers write, inside the run's folder."""
        return self.folder / "tracking"


class Tracker(ABC):
    """Sends one run to one service. It may raise whatever its library raises: `Trackers` catches it."""

    @abstractmethod
    def metrics(self, step: int, values: Mapping[str, float]) -> None:
        """Send metrics of a step, by names such as `train/reward/mean` and `val/natural/accurate`."""

    @abstractmethod
    def rollouts(self, step: int, name: str, rollouts: Sequence[Row]) -> None:
        """Send rollouts of a step as a table with the `name` `train/rollouts` or `val/rollouts`."""

    @abstractmethod
    def checkpoint(self, folder: Path) -> None:
        """Send the model in `folder`; nothing where the service keeps no files."""

    @abstractmethod
    def close(self) -> None:
        """Send what is left and end the run."""


def table_rows(rollouts: Sequence[Row]) -> list[Sequence[Cell]]:
    """Return the cells of `TABLE_COLUMNS` for each rollout."""
    return [_cells(rollout) for rollout in rollouts]


def _cells(rollout: Row) -> list[Cell]:
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
