"""Write and read the folder of a run: its settings, the metrics of each step, and every rollout."""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from sql_agent.config.settings import Settings, public_dump
from sql_agent.errors import ConfigError, DataError, ResumeError
from sql_agent.system.files import atomic_write, timestamped_folder

if TYPE_CHECKING:
    from sql_agent.rl.rollouts import FinishedRollout

# Settings that may differ when a run is resumed: where and how fast it runs, but not what it computes.
_MAY_CHANGE = ("runner", "local.threads", "local.cache_dir", "local.max_batch", "local.batch_window_s", "runs_dir",
               "judge.cache_dir", "judge.evaluations_dir",
               "run_name", "train.steps", "train.save_every", "train.keep_checkpoints")  # fmt: skip


class RunLog:
    """Appends to `runs/<name>/`; every line is flushed to disk, so an interrupted run loses none."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    @classmethod
    def create(cls, settings: Settings) -> RunLog:
        """Create the folder of a new run. Raises ConfigError when one of that name already holds a run."""
        try:
            named = settings.runs_dir / settings.run_name
            log = cls(named if settings.run_name else timestamped_folder(settings.runs_dir))
            if (log.folder / "config.json").exists():
                raise ConfigError(
                    f"{log.folder} already holds a run", hint="choose another run_name, or add --resume to continue it"
                )
            log.folder.mkdir(parents=True, exist_ok=True)
            _write_json(log.folder / "config.json", public_dump(settings))
        except OSError as error:
            raise ConfigError(
                f"cannot write a run's folder to runs_dir={settings.runs_dir}: {error.strerror}",
                hint="name a folder that this user can write to: runs_dir=FOLDER",
            ) from None
        return log

    @classmethod
    def resume(cls, settings: Settings) -> RunLog:
        """Open the folder of an earlier run.

        Raises ResumeError when there is none, or when settings differ that change what the run computes.
        """
        log = cls(settings.runs_dir / settings.run_name)
        path = log.folder / "config.json"
        if not settings.run_name or not path.exists():
            raise ResumeError(
                f"no run to resume in {log.folder}", hint="give the name of a folder under runs_dir as run_name=NAME"
            )
        before, now = _flat(json.loads(path.read_text(encoding="utf-8"))), _flat(public_dump(settings))
        changed = [
            f"{key}: {before.get(key)!r} → {now.get(key)!r}"
            for key in sorted(before.keys() | now.keys())
            if before.get(key) != now.get(key) and not _may_change(key)
        ]
        if changed:
            raise ResumeError(
                f"{log.folder} was run with other settings: {'; '.join(changed)}",
                hint="restore them, or start a new run under another run_name",
            )
        _write_json(path, public_dump(settings))
        return log

    def metrics(self, step: int, values: Mapping[str, float]) -> None:
        """Append one training step's metrics."""
        self._append("metrics.jsonl", [{"step": step, **values}])

    def validation(self, step: int, values: Mapping[str, Mapping[str, float]]) -> None:
        """Append one validation's metrics, those of each set with the prefix `val/SET/`; step 0 is before training."""
        named = {f"val/{name}/{key}": value for name, of_set in values.items() for key, value in of_set.items()}
        self._append("validation.jsonl", [{"step": step, **named}])

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
        self._append(
            "rollouts.jsonl",
            [
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
            ],
        )

    def truncate_after(self, step: int) -> None:
        """Remove the lines of the steps after `step`, because a resumed run repeats those."""
        for name in ("metrics.jsonl", "validation.jsonl", "rollouts.jsonl"):
            path = self.folder / name
            if path.exists():
                kept = [line for line in _whole_lines(path) if json.loads(line)["step"] <= step]
                _replace(path, "".join(f"{line}\n" for line in kept))

    def last_step(self) -> int:
        """Return the last step in metrics.jsonl; 0 when it has none."""
        path = self.folder / "metrics.jsonl"
        lines = _whole_lines(path) if path.exists() else []
        return int(json.loads(lines[-1])["step"]) if lines else 0

    def _append(self, name: str, objects: Iterable[Mapping[str, Any]]) -> None:
        with (self.folder / name).open("a", encoding="utf-8") as sink:
            for item in objects:
                sink.write(json.dumps(item, ensure_ascii=False, default=str) + "\n")
            sink.flush()
            os.fsync(sink.fileno())


def last_checkpoint(run: Path) -> Path:
    """Return the model of the newest checkpoint in the folder `run`, a Hugging Face folder.

    Raises DataError when there is none, as in a run of the verl backend, whose checkpoints have another form.
    """
    found = sorted(state.parent / "model" for state in (run / "checkpoints").glob("step-*/state.json"))
    if found:
        return found[-1]
    if list((run / "checkpoints").glob("global_step_*")):
        raise DataError(
            f"the checkpoints of {run} are those of the verl backend, not Hugging Face folders",
            hint=f"sql-agent export {run} OUT, then sql-agent ask --run {run} --model OUT",
        )
    raise DataError(f"{run} has no checkpoint", hint="the run ended before its first save; resume it or start it anew")


def _may_change(key: str) -> bool:
    return any(key == allowed or key.startswith(f"{allowed}.") for allowed in _MAY_CHANGE)


def _flat(values: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    flat: dict[str, Any] = {}
    for key, value in values.items():
        if isinstance(value, Mapping):
            flat.update(_flat(value, f"{prefix}{key}."))
        else:
            flat[prefix + key] = value
    return flat


def _whole_lines(path: Path) -> list[str]:
    """Return the lines that end in a newline, because a process killed in the middle of a write leaves one without."""
    return path.read_text(encoding="utf-8").split("\n")[:-1]


def _write_json(path: Path, value: Any) -> None:
    _replace(path, json.dumps(value, ensure_ascii=False, indent=2) + "\n")


def _replace(path: Path, text: str) -> None:
    with atomic_write(path) as unfinished:
        unfinished.write_text(text, encoding="utf-8")
