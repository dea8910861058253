"""Decide whether a run can be resumed, from which step, and with which settings."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from sql_agent.config.settings import Settings, flatten, public_dump
from sql_agent.errors import ResumeError
from sql_agent.runs.checkpoints import local_checkpoints, verl_latest
from sql_agent.runs.run_config import read_config
from sql_agent.runs.run_info import read_info
from sql_agent.system.validation import first_problem

# Settings that may differ when a run is resumed: where and how fast it runs, but not what it computes.
_MAY_CHANGE = ("runner", "local.threads", "local.cache_dir", "local.max_batch", "local.batch_window_s", "runs_dir",
               "judge.cache_dir", "judge.evaluations_dir", "train.micro_batch", "verl.gpu_memory_gb",
               "run_name", "tracking", "train.steps", "train.save_every", "train.keep_checkpoints")  # fmt: skip


def settings_to_resume(given: Settings, named: Collection[str]) -> Settings:
    """Return the settings that the run `given.run_name` was started with, changed where they may change.

    `named` are the dotted names of the settings on the command line. What else `given` holds, from the environment or
    defaults, is not used. Raises ResumeError when there is no such run, when it is finished, or when a setting is named
    that would change what the run computes, and DataError when its config.json or run.json is damaged.
    """
    folder = given.runs_dir / given.run_name
    path = folder / "config.json"
    if not given.run_name or not path.exists():
        raise ResumeError(
            f"no run to resume in {folder}", hint="give the name of a folder under runs_dir as run_name=NAME"
        )
    before = {".".join(key): value for key, value in flatten(read_config(folder)).items()}
    now = {".".join(key): value for key, value in flatten(public_dump(given)).items()}
    changed = [
        f"{key}: {before.get(key)!r} → {now.get(key)!r}"
        for key in sorted(named)
        if before.get(key) != now.get(key) and not _may_change(key)
    ]
    if changed:
        raise ResumeError(
            f"{folder} was run with other settings: {'; '.join(changed)}",
            hint="leave them out, or start a new run under another run_name",
        )
    taken = {key: now[key] for key in {"runs_dir", "run_name", *named} if _may_change(key) and key in now}
    settings = _settings(before | taken, path)
    if last_saved_step(folder) is None:
        raise ResumeError(
            f"{folder} has no checkpoint, because it ended before its first save",
            hint="run the same command without --resume: the name can be taken again",
        )
    _refuse_finished(folder, settings.train.steps)
    return settings


def last_saved_step(folder: Path) -> int | None:
    """Return the step of the last complete checkpoint of a run of either backend; None when there is none."""
    steps = list(local_checkpoints(folder))
    latest = verl_latest(folder)
    if latest.exists() and (text := latest.read_text(encoding="utf-8").strip()).isdigit():
        steps.append(int(text))
    return max(steps, default=None)


def how_to_go_on(folder: Path) -> str:
    """Say which command goes on with the run in `folder`, or starts it again where it has saved nothing."""
    resumed = "" if last_saved_step(folder) is None else f" with --resume run_name={folder.name}"
    return f"the same command{resumed}"


def _refuse_finished(folder: Path, steps: int) -> None:
    sessions = read_info(folder).sessions
    if sessions and sessions[-1].end == "finished" and (last_saved_step(folder) or 0) >= steps:
        raise ResumeError(
            f"{folder} is finished: all its {steps} steps are trained and validated",
            hint=f"to train on, add train.steps=MORE; to ask its model: sql-agent ask --run {folder}",
        )


def _may_change(key: str) -> bool:
    return any(key == allowed or key.startswith(f"{allowed}.") for allowed in _MAY_CHANGE)


def _settings(values: Mapping[str, Any], path: Path) -> Settings:
    nested: dict[str, Any] = {}
    for name, value in values.items():
        *parents, last = name.split(".")
        node = nested
        for part in parents:
            node = node.setdefault(part, {})
        node[last] = value
    try:
        return Settings.model_validate(nested)
    except ValidationError as error:
        raise ResumeError(
            f"{path} is of another version of this program: {first_problem(error)}",
            hint="resume it with the version that run.json beside it names",
        ) from None
