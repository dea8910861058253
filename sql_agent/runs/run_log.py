"""Write settings, metrics and rollouts to the folder of a new or resumed run."""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from filelock import FileLock, Timeout

from sql_agent.config.settings import Settings, Source, flatten, merge, public_dump, with_absolute_paths
from sql_agent.errors import ConfigError, ResumeError
from sql_agent.rollouts.trajectory import FinishedRollout
from sql_agent.runs.find_checkpoints import last_saved_step, local_checkpoints, verify_checkpoint
from sql_agent.runs.run_folder import (
    CONFIG,
    METRICS,
    PROMPT,
    ROLLOUTS,
    SFT,
    TOOL,
    UNTRAINED,
    VALIDATION,
    read_sessions,
    run_lines,
    run_source,
)
from sql_agent.runs.trackers import Trackers
from sql_agent.schemas import Question
from sql_agent.system.files import atomic_write, naming, timestamped_folder, write_text

# Settings that may change when a run is resumed, because they do not change what the run computes.
_MAY_CHANGE = ("runner", "local.cache_dir", "runs_dir", "judge.cache_dir", "train.micro_batch", "verl.gpu_memory_gb",
               "verl.config.actor_rollout_ref.actor.ppo_max_token_len_per_gpu",
               "verl.config.actor_rollout_ref.model.enable_gradient_checkpointing",
               "run_name", "tracking", "train.steps", "train.save_every", "train.keep_checkpoints")  # fmt: skip


class RunLog:
    """Appends lines to the files in the run's `folder`, and sends metrics and rollouts to `trackers`.

    Each write is flushed to disk, so that a killed run loses no line. `notice` is a message for the user about a
    renamed earlier folder or a resumed run, or empty.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.notice = ""
        self.trackers: Trackers | None = None

    @classmethod
    def create(cls, settings: Settings) -> RunLog:
        """Create the folder of a new run and lock it until this process ends.

        An earlier folder of the same name is renamed if it has no checkpoint, else it is refused.
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
        """Open and lock the folder of an earlier run; `settings` are the result of `settings_to_resume`.

        The files are cut back to the last checkpoint.
        """
        log = cls(settings.runs_dir / settings.run_name)
        log._lock()
        log.notice = cut_to_checkpoint(log.folder, settings.train.steps)
        _write_config(log.folder, settings)
        return log

    def _lock(self) -> None:
        # Next to the folder, which may be renamed. In an attribute, because FileLock releases the lock when collected.
        self._held = FileLock(self.folder.parent / f".{self.folder.name}.lock")
        try:
            self._held.acquire(timeout=0)
        except Timeout:
            raise ConfigError(
                f"another process is training the run {self.folder}",
                hint="wait until it has ended, or choose another run_name",
            ) from None

    def prompt(self, system: str, tool: Mapping[str, Any]) -> None:
        """Write the system prompt and the tool's JSON schema, which are needed to serve the model elsewhere."""
        write_text(self.folder / PROMPT, system)
        write_text(self.folder / TOOL, json.dumps(tool, ensure_ascii=False, indent=2))

    def sft(self, step: int, steps: int, loss: float) -> None:
        """Append the loss of one step of supervised fine-tuning, in nats a token."""
        self._append(SFT, [{"step": step, "steps": steps, "loss": loss}])

    def track_sft(self) -> None:
        if self.trackers:
            self.trackers.losses([line["loss"] for line in run_lines(self.folder / SFT)])

    def metrics(self, step: int, values: Mapping[str, float]) -> None:
        self._append(METRICS, [{"step": step, **values}])
        if self.trackers:
            self.trackers.metrics(step, {f"train/{name}": value for name, value in values.items()})

    def validation(self, step: int, values: Mapping[str, Mapping[str, float]]) -> None:
        """Append the metrics of a validation, {set: {metric: value}}, as `val/SET/METRIC`; step 0 is before GRPO."""
        named = {f"val/{name}/{key}": value for name, of_set in values.items() for key, value in of_set.items()}
        self._append(VALIDATION, [{"step": step, **named}])
        if self.trackers and step != UNTRAINED:  # trackers take no step below 0
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
        """Append a line for each rollout, with its record or the reason for dropping the rollout."""
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

    def last_step(self) -> int:
        return max((int(line["step"]) for line in run_lines(self.folder / METRICS)), default=0)

    def has_validation(self, step: int) -> bool:
        return any(line["step"] == step for line in run_lines(self.folder / VALIDATION))

    def _append(self, name: str, objects: Iterable[Mapping[str, Any]]) -> None:
        path = self.folder / name
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
            f"{folder} already holds a run", hint="choose another run_name, or add --resume to continue it"
        )
    renamed = folder.replace(timestamped_folder(folder.parent, f"{folder.name}-unsaved-"))
    return f"A run of this name ended before its first save; its files are now in {renamed}"


def settings_to_resume(sources: Sequence[Source]) -> Settings:
    """Return the saved settings of the run `run_name`, overridden by the command line, the last of `sources`."""
    given = merge(sources)
    folder = given.runs_dir / given.run_name
    if not given.run_name or not (folder / CONFIG).exists():
        raise ResumeError(
            f"no run to resume in {folder}", hint="give the name of a folder under runs_dir as run_name=NAME"
        )
    named, saved, now = sources[-1].values, run_source(folder), flatten(public_dump(with_absolute_paths(given)))
    before = saved.values
    changed = [
        f"{name}: {before.get(name)!r} → {now.get(name)!r}"
        for name in sorted(named)
        if before.get(name) != now.get(name) and not _may_change(name)
    ]
    if changed:
        raise ResumeError(
            f"{folder} was run with other settings: {'; '.join(changed)}",
            hint="leave out the changed settings, or start a new run under another run_name",
        )
    taken = {name: now[name] for name in {"runs_dir", "run_name", *named} if _may_change(name) and name in now}
    settings = merge([saved, Source("command line", taken)], confirmed_by=sources)
    saved_step = last_saved_step(folder)
    if saved_step is None:
        raise ResumeError(
            f"{folder} has no checkpoint, because the run ended before its first save",
            hint="run the same command without --resume: a new run can have the same name",
        )
    sessions, steps = read_sessions(folder), settings.train.steps
    if sessions and sessions[-1].end == "finished" and saved_step >= steps:
        raise ResumeError(
            f"{folder} is finished: all its {steps} steps are trained and validated",
            hint=f"to train on, add train.steps=MORE; to ask its model: sql-agent ask --run {folder}",
        )
    return settings


def question_digest(questions: Iterable[Question]) -> str:
    digest = hashlib.sha256()
    for question in questions:
        digest.update(json.dumps([question.id, question.question, question.answer, question.sql]).encode())
    return digest.hexdigest()


def check_inputs(folder: Path, inputs: Mapping[str, str]) -> None:
    """Raise ResumeError if a digest in `inputs`, {name: SHA-256}, differs from the digest at the start of the run.

    An input without a recorded digest is accepted, as for a run of an older version or a database on a server.
    """
    before: dict[str, str] = {}
    for session in read_sessions(folder):
        before = session.inputs | before
    changed = [name for name, digest in inputs.items() if before.get(name, digest) != digest]
    if changed:
        found = local_checkpoints(folder)
        model = str(found[max(found)] / "model") if found else f"the result of `sql-agent export {folder} OUT`"
        raise ResumeError(
            f"changed since {folder} began: {' and '.join(changed)}",
            hint="restore the original; or train on with the changed one as a new run: without --resume, with another "
            f"run_name and with --model {model}",
        )


def cut_to_checkpoint(folder: Path, steps: int) -> str:
    """Remove the lines after the last checkpoint from a run's JSONL files, because these steps are repeated.

    Return a message for the user: the last saved step of `steps`, and which lines were removed or are missing.
    """
    saved = last_saved_step(folder) or 0
    if (checkpoint := local_checkpoints(folder).get(saved)) is not None:
        verify_checkpoint(checkpoint)
    unfinished, missing, removed = [], [], 0
    for name in (METRICS, ROLLOUTS, VALIDATION):
        path = folder / name
        lines = path.read_bytes().splitlines(keepends=True) if path.exists() else []
        if lines and not lines[-1].endswith(b"\n"):
            unfinished.append(name)
            del lines[-1]
        steps_of_lines = [line["step"] for line in run_lines(path)]
        kept = [(step, line) for step, line in zip(steps_of_lines, lines, strict=True) if step <= saved]
        removed += len(lines) - len(kept)
        if name != VALIDATION and max((step for step, _ in kept), default=0) < saved:
            missing.append(name)
        if len(kept) < len(lines) or name in unfinished:
            with atomic_write(path) as part:
                part.write_bytes(b"".join(line for _, line in kept))
    said = [f"Resuming after step {saved} of {steps}"]
    if unfinished:
        said.append(f"The last line of {' and of '.join(unfinished)} was cut off and is removed")
    if missing:
        said.append(
            "The checkpoint has this step, but the run ended before the step was written: it is missing in "
            + " and ".join(missing)
        )
    elif unfinished or removed:
        said.append("Later steps were not saved in a checkpoint and are repeated")
    return ". ".join(said)


def _may_change(key: str) -> bool:
    return any(key == allowed or key.startswith(f"{allowed}.") for allowed in _MAY_CHANGE)
