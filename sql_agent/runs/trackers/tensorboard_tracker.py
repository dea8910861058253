"""Write a run as TensorBoard reads it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from tensorboardX import SummaryWriter

from sql_agent.runs.trackers.base import TABLE_COLUMNS, Row, TrackedRun, Tracker, table_rows


class TensorboardTracker(Tracker):
    """Writes metrics, and rollouts as a Markdown table, into `tracking/tensorboard` of the run; always offline."""

    def __init__(self, run: TrackedRun) -> None:
        self._writer = SummaryWriter(str(run.files / "tensorboard"), write_to_disk=True)
        settings = "\n".join(f"    {name}: {value}" for name, value in run.config.items())
        self._writer.add_text("config", settings)

    def metrics(self, step: int, values: Mapping[str, float]) -> None:
        """Write metrics of a step."""
        for name, value in values.items():
            self._writer.add_scalar(name, value, step)
        self._writer.flush()

    def rollouts(self, step: int, name: str, rollouts: Sequence[Row]) -> None:
        """Write rollouts as a Markdown table."""
        rows = [TABLE_COLUMNS, ["---"] * len(TABLE_COLUMNS), *table_rows(rollouts)]
        lines = ["| " + " | ".join(_cell(cell) for cell in row) + " |" for row in rows]
        self._writer.add_text(name, "\n".join(lines), step)

    def checkpoint(self, folder: Path) -> None:
        """Send nothing."""

    def close(self) -> None:
        """Close the file."""
        self._writer.close()


def _cell(cell: object) -> str:
    text = "" if cell is None else f"{cell:.3f}" if isinstance(cell, float) else str(cell)
    return text.replace("|", "\\|").replace("\n", " ")
