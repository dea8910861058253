"""Name and find the checkpoints of a run, of either backend, by their step."""

from __future__ import annotations

import re
from pathlib import Path

# As a whole, because beside them may lie an unfinished step-000005.partial or somebody's step-000005-backup.
_LOCAL = re.compile(r"step-(\d{6,})")
_VERL = re.compile(r"global_step_(\d+)")


def local_checkpoint(run: Path, step: int) -> Path:
    """Return where the backend local writes the checkpoint of `step`."""
    return run / "checkpoints" / f"step-{step:06d}"


def local_checkpoints(run: Path) -> dict[int, Path]:
    """Return the folders of the complete checkpoints that the backend local wrote, by their step, ascending."""
    found = _by_step(run, _LOCAL)
    return {step: folder for step, folder in found.items() if (folder / "state.json").exists()}


def verl_checkpoints(run: Path) -> dict[int, Path]:
    """Return the folders of the checkpoints that the backend verl wrote, by their step, ascending."""
    return _by_step(run, _VERL)


def verl_checkpoint(run: Path, step: int) -> Path:
    """Return where the backend verl writes the checkpoint of `step`."""
    return run / "checkpoints" / f"global_step_{step}"


def is_of_verl(checkpoint: Path) -> bool:
    """Return whether the name of `checkpoint` is that of one of the backend verl."""
    return _VERL.fullmatch(checkpoint.name) is not None


def verl_latest(run: Path) -> Path:
    """Return the file in which verl keeps the step that it goes on after."""
    return run / "checkpoints" / "latest_checkpointed_iteration.txt"


def checkpoints_by_step(run: Path) -> dict[int, Path]:
    """Return the folders of the checkpoints of `run`, of either backend, by their step."""
    return verl_checkpoints(run) | local_checkpoints(run)


def step_of_verl(folder: Path) -> int | None:
    """Return the step of a checkpoint of the backend verl by its name; None for another folder."""
    named = _VERL.fullmatch(folder.name)
    return int(named[1]) if named and (folder / "actor").is_dir() else None


def _by_step(run: Path, name: re.Pattern[str]) -> dict[int, Path]:
    folders = (run / "checkpoints").glob("*/")
    return dict(sorted((int(named[1]), folder) for folder in folders if (named := name.fullmatch(folder.name))))
