"""Send a run to SwanLab."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

import swanlab
from swanlab import echarts

from sql_agent.runs.trackers.base import TABLE_COLUMNS, Row, TrackedRun, Tracker, table_rows


class SwanlabTracker(Tracker):
    """Sends metrics, tables and the model's files; offline it writes files for `swanlab sync`."""

    def __init__(self, run: TrackedRun) -> None:
        # Without what SwanLab finds out by itself of the machine and its user, and without the terminal's text.
        off = dict.fromkeys(("hardware", "runtime", "requirements", "conda", "git", "monitor"), False)
        quiet = swanlab.Settings.model_validate(
            {"interactive": False, "probe": off, "terminal": {"proxy_type": "none"}}
        )
        resumed = {} if run.offline else {"id": run.id, "resume": "allow"}  # which SwanLab knows online only
        self._run = swanlab.init(
            project=run.project,
            name=run.name,
            config=dict(run.config),
            log_dir=str(run.files / "swanlab"),
            mode="offline" if run.offline else "online",
            settings=quiet,
            **resumed,
        )

    def metrics(self, step: int, values: Mapping[str, float]) -> None:
        """Send metrics of a step."""
        self._run.log(dict(values), step=step)

    def rollouts(self, step: int, name: str, rollouts: Sequence[Row]) -> None:
        """Send rollouts as a table."""
        table = echarts.Table()
        table.add(list(TABLE_COLUMNS), table_rows(rollouts))
        self._run.log({name: table}, step=step)

    def checkpoint(self, folder: Path) -> None:
        """Send the files of a folder with the run."""
        self._run.save(str(folder / "*"), base_path=str(folder.parent), policy="now")

    def close(self) -> None:
        """Wait until all is sent."""
        self._run.finish()
