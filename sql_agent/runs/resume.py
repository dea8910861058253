"""Continue a run with --resume: merge its settings, check its inputs, and cut its files back to the last checkpoint."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

from sql_agent.config.settings import Settings, Source, flatten, merge, public_dump, with_absolute_paths
from sql_agent.errors import ResumeError
from sql_agent.runs.checkpoints import last_saved_step, local_checkpoints, verify_checkpoint
from sql_agent.runs.run_folder import CONFIG, METRICS, ROLLOUTS, VALIDATION, read_sessions, run_lines, run_source
from sql_agent.schemas import Question
from sql_agent.system.files import atomic_write

# Settings that the command line may change when a run is resumed, because they do not change what the run computes.
_MAY_CHANGE = ("runner", "local.cache_dir", "local.max_minutes", "runs_dir", "judge.cache_dir",
               "train.micro_batch", "verl.gpu_memory_gb",
               "verl.config.actor_rollout_ref.actor.ppo_max_token_len_per_gpu",
               "verl.config.actor_rollout_ref.model.enable_gradient_checkpointing",
               "run_name", "tracking", "train.steps", "train.save_every", "train.keep_checkpoints")  # fmt: skip


def settings_to_resume(sources: Sequence[Source]) -> Settings:
    """Return the saved settings of the run `run_name`, overridden by the last of `sources`, the command line.

    Raises ResumeError if the run has no folder or no checkpoint, if the run is finished, or if the command line changes
    a setting that must not change.
    """
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
            hint="run the same command without --resume; the new run can have the same name",
        )
    sessions, steps = read_sessions(folder), settings.train.steps
    if sessions and sessions[-1].end == "finished" and saved_step >= steps:
        raise ResumeError(
            f"{folder} is finished: all its {steps} steps are trained and validated",
            hint=f"to train more steps, add train.steps=NUMBER; to ask the model: sql-agent ask --run {folder}",
        )
    return settings


def question_digest(questions: Iterable[Question]) -> str:
    """Return the SHA-256 of the ids, texts, answers and SQL of `questions`."""
    digest = hashlib.sha256()
    for question in questions:
        digest.update(json.dumps([question.id, question.question, question.answer, question.sql]).encode())
    return digest.hexdigest()


def check_inputs(folder: Path, inputs: Mapping[str, str]) -> None:
    """Raise ResumeError if a digest in `inputs`, {name: SHA-256}, differs from the digest recorded in run.json.

    An input without a recorded digest is accepted: older versions of this program recorded no digests, and a database
    server has none.
    """
    before: dict[str, str] = {}
    for session in read_sessions(folder):
        before = session.inputs | before
    changed = [name for name, digest in inputs.items() if before.get(name, digest) != digest]
    if changed:
        found = local_checkpoints(folder)
        model = str(found[max(found)] / "model") if found else f"the result of `sql-agent export {folder} OUT`"
        raise ResumeError(
            f"{' and '.join(changed)} changed after {folder} began",
            hint="restore the original data, or train a new run on the changed data: without --resume, with another "
            f"run_name and with --model {model}",
        )


def cut_to_checkpoint(folder: Path, steps: int) -> str:
    """Remove the lines of all steps after the last checkpoint from a run's JSONL files: these steps are repeated.

    Return a message for the user: the last saved step of `steps`, and which lines were removed or are missing. Raises
    DataError if a file of the checkpoint is damaged.
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
        where = " and ".join(missing)
        said.append(f"The checkpoint has this step, but the run ended before the step was written to {where}")
    elif unfinished or removed:
        said.append("Later steps were not saved in a checkpoint and are repeated")
    return ". ".join(said)


def how_to_go_on(folder: Path) -> str:
    """Return which command resumes the run in `folder`, or starts it again if it has no checkpoint."""
    resumed = "" if last_saved_step(folder) is None else f" with --resume run_name={folder.name}"
    return f"the same command{resumed}"


def _may_change(key: str) -> bool:
    return any(key == allowed or key.startswith(f"{allowed}.") for allowed in _MAY_CHANGE)
