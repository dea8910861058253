"""The checkpoints of a run, of either backend: where they are, and whether their files are as they were saved."""

from __future__ import annotations

import hashlib
import json
import re
from pathlib import Path

from sql_agent.errors import DataError

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


def checkpoints_by_step(run: Path) -> dict[int, Path]:
    """Return the folders of the checkpoints of `run`, of either backend, by their step."""
    return verl_checkpoints(run) | local_checkpoints(run)


def step_of_verl(folder: Path) -> int | None:
    """Return the step of a checkpoint of the backend verl by its name; None for another folder."""
    named = _VERL.fullmatch(folder.name)
    return int(named[1]) if named and (folder / "actor").is_dir() else None


def last_saved_step(folder: Path) -> int | None:
    """Return the step of the last complete checkpoint of a run of either backend; None when there is none."""
    steps = list(local_checkpoints(folder))
    # In this file verl keeps the step that it continues after.
    latest = folder / "checkpoints" / "latest_checkpointed_iteration.txt"
    if latest.exists() and (text := latest.read_text(encoding="utf-8").strip()).isdigit():
        steps.append(int(text))
    return max(steps, default=None)


def how_to_go_on(folder: Path) -> str:
    """Return the command that continues the run in `folder`, or that starts it again if nothing was saved."""
    resumed = "" if last_saved_step(folder) is None else f" with --resume run_name={folder.name}"
    return f"the same command{resumed}"


def last_checkpoint(run: Path) -> Path:
    """Return the model of the newest checkpoint in the folder `run`, a Hugging Face folder.

    Raises DataError when it is damaged, or when there is none, as in a run of the verl backend, whose checkpoints have
    another form.
    """
    found = local_checkpoints(run)
    if found:
        verify_checkpoint(found[max(found)], model_only=True)
        return found[max(found)] / "model"
    if verl_checkpoints(run):
        raise DataError(
            f"the checkpoints of {run} are those of the verl backend, not Hugging Face folders",
            hint=f"sql-agent export {run} OUT, then sql-agent ask --run {run} --model OUT",
        )
    raise DataError(f"{run} has no checkpoint", hint="the run ended before its first save; resume it or start it again")


def digests(checkpoint: Path) -> dict[str, str]:
    """Return the SHA-256 of each file in the folder `checkpoint`, by its path there, such as model/config.json."""
    files = sorted(path for path in checkpoint.rglob("*") if path.is_file())
    return {path.relative_to(checkpoint).as_posix(): _sha256(path) for path in files}


def verify_checkpoint(checkpoint: Path, *, model_only: bool = False) -> None:
    """Raise DataError that names the first file of a local `checkpoint` that is not as it was saved.

    The SHA-256 of each file is in state.json. With `model_only` only the files of the model are read.
    """
    state = checkpoint / "state.json"
    try:
        saved = json.loads(state.read_text(encoding="utf-8")).get("sha256", {})
    except (ValueError, AttributeError):
        raise _damaged(checkpoint, f"{state} is not a JSON object") from None
    for name, digest in saved.items():
        path = checkpoint / name
        if model_only and not name.startswith("model/"):
            continue
        if not path.exists():
            raise _damaged(checkpoint, f"{path} is missing")
        if _sha256(path) != digest:
            raise _damaged(checkpoint, f"{path} has another SHA-256 than when it was saved")


def _damaged(checkpoint: Path, problem: str) -> DataError:
    step = int(checkpoint.name.partition("-")[2])
    older = max((other for other in local_checkpoints(checkpoint.parent.parent) if other < step), default=None)
    then = "start the run again without --resume" if older is None else f"--resume then goes on after step {older}"
    return DataError(
        f"the checkpoint of step {step} is damaged: {problem}", hint=f"remove the folder {checkpoint}; {then}"
    )


def _sha256(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _by_step(run: Path, name: re.Pattern[str]) -> dict[int, Path]:
    folders = (run / "checkpoints").glob("*/")
    return dict(sorted((int(named[1]), folder) for folder in folders if (named := name.fullmatch(folder.name))))
