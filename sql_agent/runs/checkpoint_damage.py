"""Refuse a checkpoint of either backend that is damaged, before anything is loaded."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from sql_agent.errors import DataError, ModelError
from sql_agent.runs.checkpoints import is_of_verl, local_checkpoints, verl_checkpoints, verl_latest
from sql_agent.system.files import read_object
from sql_agent.system.weights import check_torch_file, parameters_in


def refuse_damaged(checkpoint: Path) -> None:
    """Raise DataError that names the damaged file of `checkpoint`, unless a run can go on from it."""
    with _named(checkpoint):
        if is_of_verl(checkpoint):
            _check_shards(checkpoint, "*.pt")
        else:
            read_object(checkpoint / "state.json", hint="")
            check_torch_file(checkpoint / "optimizer.pt", all_of_it=True)
            _check_model(checkpoint / "model")


def refuse_damaged_model(checkpoint: Path) -> None:
    """Raise DataError that names the damaged file of the model of `checkpoint`, unless that can be loaded."""
    with _named(checkpoint):
        if is_of_verl(checkpoint):
            _check_shards(checkpoint, "model_*.pt")
        else:
            _check_model(checkpoint / "model")


@contextmanager
def _named(checkpoint: Path) -> Iterator[None]:
    """Say which checkpoint is damaged and what to do with it, where a check inside finds a damaged file."""
    try:
        yield
    except (DataError, ModelError, FileNotFoundError) as error:
        step = int(re.findall(r"\d+", checkpoint.name)[-1])
        problem = f"{error.filename} is missing" if isinstance(error, FileNotFoundError) else error.message
        raise DataError(
            f"the checkpoint of step {step} is damaged: {problem}",
            hint=f"remove the folder {checkpoint}; {_without(checkpoint, step)}",
        ) from None


def _without(checkpoint: Path, step: int) -> str:
    """Say how its run goes on without `checkpoint`, that of `step`."""
    run, verl = checkpoint.parent.parent, is_of_verl(checkpoint)
    found = verl_checkpoints(run) if verl else local_checkpoints(run)
    older = max((other for other in found if other < step), default=None)
    if older is None:
        return "the run has no older one, so start it again: the same command without --resume"
    told = f", once verl is told so: echo {older} > {verl_latest(run)}" if verl else ""
    return f"--resume then goes on after step {older}{told}"


def _check_model(folder: Path) -> None:
    for path in (folder / "config.json", *folder.glob("*.json")):
        read_object(path, hint="")
    weights = list(folder.glob("*.safetensors"))
    if not weights:
        raise DataError(f"{folder} holds no weights")
    for path in weights:
        parameters_in(path)


def _check_shards(checkpoint: Path, names: str) -> None:
    """Check the files of torch in a checkpoint of verl, which may hold tens of gigabytes: not the tensors in them."""
    if not checkpoint.is_dir():
        raise DataError(f"{checkpoint} is missing")
    for path in sorted(checkpoint.rglob(names)):
        check_torch_file(path)
    for path in sorted((checkpoint / "actor" / "huggingface").glob("*.json")):
        read_object(path, hint="")
