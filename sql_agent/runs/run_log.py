"""Write the folder of a run: its settings, the metrics of each step, and every rollout."""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from filelock import FileLock, Timeout

from sql_agent.config.settings import Settings, public_dump
from sql_agent.errors import ConfigError
from sql_agent.runs.checkpoints import last_saved_step, local_checkpoints, verify_checkpoint
from sql_agent.runs.run_folder import CONFIG, METRICS, ROLLOUTS, VALIDATION
from sql_agent.runs.run_lines import CutFile, cut_after, run_lines
from sql_agent.system.files import atomic_write, naming, timestamped_folder

if TYPE_CHECKING:
    from sql_agent.rollouts.finished_rollout import FinishedRollout
    from sql_agent.runs.trackers import Trackers

_OF_EVERY_STEP = (METRICS, ROLLOUTS)
_LINES = (*_OF_EVERY_STEP, VALIDATION)


class RunLog:
    """Appends to `runs/<name>/`; every line is flushed to disk, so an interrupted run loses no line.

    `moved_aside` is the new folder of an earlier run of that name that had saved nothing; None without such a run.
    `resumed` describes where a resumed run continues and what was lost; it is empty for a new run. `trackers` are sent
    what is appended.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.moved_aside: Path | None = None
        self.resumed = ""
        self.trackers: Trackers | None = None

    @classmethod
    def create(cls, settings: Settings) -> RunLog:
        """Take the name of a new run and create its folder, for this process alone until it ends.

        The files of a run of the same name that ended before its first save are moved to a folder beside it. Raises
        ConfigError when the run of that name has a checkpoint, when another process uses the folder, or when
        the folder cannot be written to.
        """
        try:
            settings.runs_dir.mkdir(parents=True, exist_ok=True)
            named = settings.runs_dir / settings.run_name
            log = cls(named if settings.run_name else timestamped_folder(settings.runs_dir))
            log._lock()
            if (log.folder / CONFIG).exists():
                log.moved_aside = _move_aside(log.folder)
            log.folder.mkdir(parents=True, exist_ok=True)
            _write_config(log.folder, settings)
        except OSError as error:
            raise ConfigError(
                f"cannot write a run's folder to runs_dir={settings.runs_dir}: {error.strerror}",
                hint="name a folder that this user can write to: runs_dir=FOLDER",
            ) from None
        return log

    @classmethod
    def resume(cls, settings: Settings) -> RunLog:
        """Open the folder of an earlier run, for this process alone; `settings` are those of `settings_to_resume`.

        Its files are cut back to the last step that is saved, because the steps after it are repeated. Raises
        ConfigError when another process uses it, and DataError when its last checkpoint or a file of lines is
        damaged.
        """
        log = cls(settings.runs_dir / settings.run_name)
        log._lock()
        saved = last_saved_step(log.folder) or 0
        if (checkpoint := local_checkpoints(log.folder).get(saved)) is not None:
            verify_checkpoint(checkpoint)
        kept = {name: cut_after(log.folder / name, saved) for name in _LINES}
        log.resumed = _resumed(saved, settings.train.steps, kept)
        _write_config(log.folder, settings)
        return log

    def _lock(self) -> None:
        """Keep other processes out of this run until this process ends."""
        # Beside the folder, because the folder may be moved aside. In an attribute, because a deleted lock is released.
        self._held = FileLock(self.folder.parent / f".{self.folder.name}.lock")
        try:
            self._held.acquire(timeout=0)
        except Timeout:
            raise ConfigError(
                f"another process is training the run {self.folder}",
                hint="wait until it has ended, or choose another run_name",
            ) from None

    def metrics(self, step: int, values: Mapping[str, float]) -> None:
        """Append one training step's metrics."""
        self._append(METRICS, [{"step": step, **values}])
        if self.trackers:
            self.trackers.metrics(step, {f"train/{name}": value for name, value in values.items()})

    def validation(self, step: int, values: Mapping[str, Mapping[str, float]]) -> None:
        """Append one validation's metrics, those of each set with the prefix `val/SET/`; step 0 is before training."""
        named = {f"val/{name}/{key}": value for name, of_set in values.items() for key, value in of_set.items()}
        self._append(VALIDATION, [{"step": step, **named}])
        if self.trackers:
            self.trackers.metrics(step, named)

    def rollouts(
        self,
        step: int,
        mode: str,
        rollouts: Iterable[FinishedRollout],
        advantages: Mapping[str, float] | None = None,
        *,
        val_set: str | None = None,
    ) -> None:
        """Append one line per rollout: its record with question, queries, answer and reward, or why it was dropped."""
        lines = [
            {
                "step": step,
                "mode": mode,
                "val_set": val_set,
                "rollout_id": r.rollout_id,
                "group": r.group,
                "advantage": (advantages or {}).get(r.rollout_id),
                "triplets": r.triplets,
                "sequences": len(r.sequences),
                "dropped": r.dropped.model_dump(mode="json") if r.dropped else None,
                "record": r.record.model_dump(mode="json") if r.record else None,
            }
            for r in rollouts
        ]
        self._append(ROLLOUTS, lines)
        if self.trackers:
            self.trackers.rollouts(step, mode, lines)

    def last_step(self) -> int:
        """Return the last step in metrics.jsonl; 0 without a step."""
        return max((int(line["step"]) for line in run_lines(self.folder / METRICS)), default=0)

    def has_validation(self, step: int) -> bool:
        """Return whether the validation at `step` was written; step 0 is before training."""
        return any(line["step"] == step for line in run_lines(self.folder / "validation.jsonl"))

    def _append(self, name: str, objects: Iterable[Mapping[str, Any]]) -> None:
        path = self.folder / name
        with naming(path), path.open("a", encoding="utf-8") as sink:
            for item in objects:
                sink.write(json.dumps(item, ensure_ascii=False, default=str) + "\n")
            sink.flush()
            os.fsync(sink.fileno())


def _resumed(saved: int, steps: int, kept: Mapping[str, CutFile]) -> str:
    """Describe the step a run continues after, what was removed of later steps, and which files lack that step."""
    said = [f"Resuming after step {saved} of {steps}"]
    if cut := [name for name, of_file in kept.items() if of_file.was_cut]:
        said.append(f"The last line of {' and of '.join(cut)} was cut off and is removed")
    if lacking := [name for name in _OF_EVERY_STEP if kept[name].last_step < saved]:
        said.append(
            f"The checkpoint has this step, but the run ended before the step was written: it is missing in "
            f"{' and '.join(lacking)}"
        )
    elif cut or any(of_file.removed for of_file in kept.values()):
        said.append("Later steps were not saved in a checkpoint and are repeated")
    return ". ".join(said)


def _write_config(folder: Path, settings: Settings) -> None:
    with atomic_write(folder / CONFIG) as unfinished:
        text = json.dumps(public_dump(settings), ensure_ascii=False, indent=2) + "\n"
        unfinished.write_text(text, encoding="utf-8")


def _move_aside(folder: Path) -> Path:
    """Rename the folder of a run that has no checkpoint and return its new name. Raises ConfigError when it has one."""
    if last_saved_step(folder) is not None:
        raise ConfigError(
            f"{folder} already holds a run", hint="choose another run_name, or add --resume to continue it"
        )
    aside = timestamped_folder(folder.parent, f"{folder.name}-unsaved-")
    return folder.replace(aside)
