"""Find the checkpoints of a run, saved by the backend local or verl, and verify their files by SHA-256."""

from __future__ import annotations

import hashlib
import json
import re
from pathlib import Path

from sql_agent.errors import DataError

# Folder names of checkpoints. An unfinished folder has another name, such as step-000005.partial.
_LOCAL = re.compile(r"step-(\d{6,})")
_VERL = re.compile(r"global_step_(\d+)")

ADAPTERS = "adapter"  # folder of LoRA adapters in a local checkpoint


def local_checkpoint(run: Path, step: int) -> Path:
    return run / "checkpoints" / f"step-{step:06d}"


def initial_weights(run: Path) -> Path:
    """Return the folder of the weights before GRPO, which the backend local needs to resume with LoRA or a KL term."""
    return run / "checkpoints" / "base"


def local_checkpoints(run: Path) -> dict[int, Path]:
    """Return the complete checkpoints of the local backend as {step: folder}, in ascending order."""
    return {step: folder for step, folder in _by_step(run, _LOCAL).items() if (folder / "state.json").exists()}


def verl_checkpoints(run: Path) -> dict[int, Path]:
    return _by_step(run, _VERL)


def checkpoints_by_step(run: Path) -> dict[int, Path]:
    return verl_checkpoints(run) | local_checkpoints(run)


def step_of_verl(folder: Path) -> int | None:
    """Return the step of the verl checkpoint `folder`; None if `folder` is not such a checkpoint."""
    named = _VERL.fullmatch(folder.name)
    return int(named[1]) if named and (folder / "actor").is_dir() else None


def last_saved_step(folder: Path) -> int | None:
    """Return the step of the last checkpoint, after which a resumed run continues; None without a checkpoint."""
    steps = list(local_checkpoints(folder))
    latest = folder / "checkpoints" / "latest_checkpointed_iteration.txt"
    if latest.exists() and (text := latest.read_text("utf-8").strip()).isdigit():
        steps.append(int(text))
    return max(steps, default=None)


def last_checkpoint(run: Path) -> Path:
    """Return the Hugging Face folder of the model in the last checkpoint of `run`, after `verify_checkpoint`.

    Raises DataError if the run has no checkpoint of the backend local.
    """
    if found := local_checkpoints(run):
        last = found[max(found)]
        verify_checkpoint(last, model_only=True)
        return last / "model"
    if verl_checkpoints(run):
        raise DataError(
            f"the checkpoints of {run} are from the backend verl and not Hugging Face folders",
            hint=f"sql-agent export {run} OUT, then sql-agent ask --run {run} --model OUT",
        )
    raise DataError(f"{run} has no checkpoint", hint="the run ended before its first save: start the run again")


def digests(checkpoint: Path) -> dict[str, str]:
    """Return {path: SHA-256} of all files in `checkpoint`, with relative paths such as model/config.json."""
    files = sorted(path for path in checkpoint.rglob("*") if path.is_file())
    return {path.relative_to(checkpoint).as_posix(): _sha256(path) for path in files}


def verify_checkpoint(checkpoint: Path, *, model_only: bool = False) -> None:
    """Raise DataError if a file of a local `checkpoint` is missing, or has another SHA-256 than in state.json.

    With `model_only`, only the files in model/ are checked.
    """
    state = checkpoint / "state.json"
    try:
        saved = json.loads(state.read_text("utf-8")).get("sha256", {})
    except (ValueError, AttributeError):
        raise _damaged(checkpoint, f"{state} is not a JSON object") from None
    for name, digest in saved.items():
        path = checkpoint / name
        if model_only and not name.startswith("model/"):
            continue
        if not path.exists():
            raise _damaged(checkpoint, f"{path} is missing")
        if _sha256(path) != digest:
            raise _damaged(checkpoint, f"{path} has another SHA-256 than when the checkpoint was saved")


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
