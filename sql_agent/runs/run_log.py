"""Create or reopen a run's folder, and append metrics, validations and rollouts to its files."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from filelock import FileLock, Timeout
from pydantic import TypeAdapter

from sql_agent.config.settings import Settings, public_dump, with_absolute_paths
from sql_agent.errors import ConfigError
from sql_agent.rollouts.trajectory import FinishedRollout
from sql_agent.runs.checkpoints import last_saved_step
from sql_agent.runs.resume import cut_to_checkpoint
from sql_agent.runs.run_folder import (
    CONFIG,
    IN_HAND,
    METRICS,
    PROMPT,
    ROLLOUTS,
    SFT,
    TOOL,
    UNTRAINED,
    VALIDATION,
    run_lines,
)
from sql_agent.runs.trackers import Trackers
from sql_agent.system.files import naming, timestamped_folder, write_text

_InHand = tuple[str, int, list[FinishedRollout]]


class RunLog:
    """Appends lines to the files in a run's `folder`, and sends metrics and rollouts to `trackers`.

    Each line is flushed to disk, so that a killed run loses no line. `notice` is a message for the user: that an
    earlier folder was renamed, or after which step the run is resumed; "" for neither.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.notice = ""
        self.trackers: Trackers | None = None
        self.say: Callable[[str], None] = print
        self._written: set[str] = set()  # names of the files to which this process has appended

    @classmethod
    def create(cls, settings: Settings) -> RunLog:
        """Create the folder of a new run and lock it until this process ends.

        An earlier run of the same name is renamed if it has no checkpoint. Raises ConfigError if the earlier run has a
        checkpoint, if another process trains it, or if the folder cannot be written.
        """
        try:
            settings.runs_dir.mkdir(parents=True, exist_ok=True)
            named = settings.runs_dir / settings.run_name
            log = cls(named if settings.run_name else timestamped_folder(settings.runs_dir))
            log._lock()
            if (log.folder / CONFIG).exists():
                log.notice = _rename_unsaved(log.folder)
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
        """Open and lock the folder of an earlier run, and cut its files back to the last checkpoint.

        `settings` are the result of `settings_to_resume`. Raises ConfigError if another process trains the run.
        """
        log = cls(settings.runs_dir / settings.run_name)
        log._lock()
        log.notice = cut_to_checkpoint(log.folder, settings.train.steps)
        _write_config(log.folder, settings)
        return log

    def _lock(self) -> None:
        # The lock file is next to the folder, because the folder may be renamed. An attribute keeps the lock, because a
        # FileLock releases its lock when it is garbage-collected.
        self._held = FileLock(self.folder.parent / f".{self.folder.name}.lock")
        try:
            self._held.acquire(timeout=0)
        except Timeout:
            raise ConfigError(
                f"another process is training the run {self.folder}",
                hint="wait until that process has ended, or choose another run_name",
            ) from None

    def prompt(self, system: str, tool: Mapping[str, Any]) -> None:
        """Write the system prompt and the JSON schema of the tool, which a server of the trained model needs."""
        write_text(self.folder / PROMPT, system)
        write_text(self.folder / TOOL, json.dumps(tool, ensure_ascii=False, indent=2))

    def sft(self, step: int, steps: int, loss: float) -> None:
        """Append the `loss` (nats per token) of step `step` of `steps` of supervised fine-tuning."""
        self._append(SFT, [{"step": step, "steps": steps, "loss": loss}])

    def track_sft(self) -> None:
        if self.trackers:
            self.trackers.losses([line["loss"] for line in run_lines(self.folder / SFT)])

    def metrics(self, step: int, values: Mapping[str, float]) -> None:
        self._append(METRICS, [{"step": step, **values}])
        if self.trackers:
            self.trackers.metrics(step, {f"train/{name}": value for name, value in values.items()})

    def validation(self, step: int, values: Mapping[str, Mapping[str, float]]) -> dict[str, float]:
        """Append the metrics of a validation, {set: {metric: value}}, and return them as {`val/SET/METRIC`: value}.

        `step` is the number of GRPO steps so far, or UNTRAINED before supervised fine-tuning.
        """
        named = {f"val/{name}/{key}": value for name, of_set in values.items() for key, value in of_set.items()}
        self._append(VALIDATION, [{"step": step, **named}])
        if self.trackers and step != UNTRAINED:  # trackers take no step below 0
            self.trackers.metrics(step, named)
        return named

    def rollouts(
        self,
        step: int,
        mode: str,
        rollouts: Iterable[FinishedRollout],
        advantages: Mapping[str, float] | None = None,
        *,
        val_set: str | None = None,
    ) -> None:
        """Append a line for each rollout of `step`, with its record, and with the reason if it was dropped.

        `mode` is "train" or "val", `advantages` is {rollout id: advantage}, `val_set` the name of the validation set.
        """
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
        if self.trackers and step != UNTRAINED:
            self.trackers.rollouts(step, mode, lines)

    def keep_in_hand(self, mode: str, step: int, rollouts: Sequence[FinishedRollout]) -> None:
        """Write the `rollouts` that had ended in `step` when the run was interrupted, with their token ids."""
        in_hand = TypeAdapter(_InHand).dump_json((mode, step, list(rollouts)))
        write_text(self.folder / IN_HAND, in_hand.decode())

    def take_in_hand(self, mode: str, step: int) -> list[FinishedRollout]:
        """Delete the file of `keep_in_hand`, and return its rollouts if they are those of `step`, else none.

        Rollouts of another step were sampled from other weights than those of the checkpoint.
        """
        if not (path := self.folder / IN_HAND).exists():
            return []
        kept = path.read_bytes()
        path.unlink()
        *of_step, rollouts = TypeAdapter(_InHand).validate_json(kept)
        return rollouts if of_step == [mode, step] else []

    def last_step(self) -> int:
        return max((int(line["step"]) for line in run_lines(self.folder / METRICS)), default=0)

    def has_validation(self, step: int) -> bool:
        return any(line["step"] == step for line in run_lines(self.folder / VALIDATION))

    def _append(self, name: str, objects: Iterable[Mapping[str, Any]]) -> None:
        path = self.folder / name
        if name in self._written and not path.exists():
            self.say(f"{path} was deleted during the run: its earlier lines are lost, also in the report")
        self._written.add(name)
        with naming(path), path.open("a", encoding="utf-8") as sink:
            for item in objects:
                sink.write(json.dumps(item, ensure_ascii=False, default=str) + "\n")
            sink.flush()
            os.fsync(sink.fileno())


def _write_config(folder: Path, settings: Settings) -> None:
    write_text(folder / CONFIG, json.dumps(public_dump(with_absolute_paths(settings)), ensure_ascii=False, indent=2))


def _rename_unsaved(folder: Path) -> str:
    if last_saved_step(folder) is not None:
        raise ConfigError(
            f"{folder} already holds a run", hint="choose another run_name, or continue the run with --resume"
        )
    renamed = folder.replace(timestamped_folder(folder.parent, f"{folder.name}-unsaved-"))
    return f"A run of this name ended before its first save; its files are now in {renamed}"
