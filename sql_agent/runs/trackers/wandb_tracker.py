"""Send a run to Weights & Biases."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

import wandb

from sql_agent.errors import TrainingError
from sql_agent.runs.trackers.base import TABLE_COLUMNS, Row, TrackedRun, Tracker, table_rows

_TIMEOUT_S = 60


class WandbTracker(Tracker):
    """Sends metrics, tables and the model as an artifact; offline it writes files for `wandb sync`."""

    def __init__(self, run: TrackedRun) -> None:
        """Start the run. Raises TrainingError when there is no key, because wandb would ask for one and wait."""
        if not run.offline and not wandb.api.api_key:
            raise TrainingError("there is no key", hint="run `wandb login`, or set tracking.offline=true")
        wandb.setup(wandb.Settings(silent=True))
        run.files.mkdir(parents=True, exist_ok=True)
        # Without what wandb finds out by itself of the machine and its user: the config has commit and versions.
        quiet = wandb.Settings(
            silent=True, console="off", init_timeout=_TIMEOUT_S, disable_git=True, disable_code=True,
            x_disable_meta=True, x_disable_machine_info=True, x_disable_stats=True,
        )  # fmt: skip
        self._run = wandb.init(
            project=run.project,
            name=run.name,
            id=run.id,
            resume="allow",
            config=dict(run.config),
            dir=str(run.files),
            mode="offline" if run.offline else "online",
            settings=quiet,
        )
        self._name = run.name

    def metrics(self, step: int, values: Mapping[str, float]) -> None:
        """Send metrics of a step."""
        self._run.log(dict(values), step=step)

    def rollouts(self, step: int, name: str, rollouts: Sequence[Row]) -> None:
        """Send rollouts as a wandb.Table."""
        self._run.log({name: wandb.Table(columns=list(TABLE_COLUMNS), data=[*table_rows(rollouts)])}, step=step)

    def checkpoint(self, folder: Path) -> None:
        """Send a folder as an artifact of the type model."""
        artifact = wandb.Artifact(f"{self._name}-model", type="model")
        artifact.add_dir(str(folder))
        self._run.log_artifact(artifact)

    def close(self) -> None:
        """Wait until all is sent."""
        self._run.finish()
        wandb.teardown()  # finish alone was seen to return before an offline run was on the disk
