"""Refuse a checkpoint of the backend local that is damaged, before anything is loaded."""

from __future__ import annotations

import zipfile
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from sql_agent.errors import DataError, ModelError
from sql_agent.system.json_files import read_object
from sql_agent.system.weights import parameters_in
from sql_agent.tracking.checkpoints import local_checkpoints


def refuse_damaged(checkpoint: Path) -> None:
    """Raise DataError that names the damaged file of `checkpoint`, unless a run can go on from it."""
    with _named(checkpoint):
        read_object(checkpoint / "state.json", hint="")
        _check_optimizer(checkpoint / "optimizer.pt")
        _check_model(checkpoint / "model")


def refuse_damaged_model(checkpoint: Path) -> None:
    """Raise DataError that names the damaged file of the model of `checkpoint`, unless that can be loaded."""
    with _named(checkpoint):
        _check_model(checkpoint / "model")


@contextmanager
def _named(checkpoint: Path) -> Iterator[None]:
    """Say which checkpoint is damaged and what to do with it, where a check inside finds a damaged file."""
    try:
        yield
    except (DataError, ModelError, FileNotFoundError) as error:
        step = int(checkpoint.name.rpartition("-")[2])
        problem = f"{error.filename} is missing" if isinstance(error, FileNotFoundError) else error.message
        older = max((other for other in local_checkpoints(checkpoint.parent.parent) if other < step), default=None)
        then = (
            "the run has no older one, so start it again: the same command without --resume"
            if older is None
            else f"--resume then goes on after step {older}"
        )
        raise DataError(
            f"the checkpoint of step {step} is damaged: {problem}", hint=f"remove the folder {checkpoint}; {then}"
        ) from None


def _check_model(folder: Path) -> None:
    for path in (folder / "config.json", *folder.glob("*.json")):
        read_object(path, hint="")
    weights = list(folder.glob("*.safetensors"))
    if not weights:
        raise DataError(f"{folder} holds no weights")
    for path in weights:
        parameters_in(path)


def _check_optimizer(path: Path) -> None:
    """Raise DataError unless `path` is whole: torch writes a zip file, which holds a checksum of each part."""
    try:
        with zipfile.ZipFile(path) as archive:
            is_whole = archive.testzip() is None
    except (zipfile.BadZipFile, zlib.error, EOFError):
        is_whole = False
    if not is_whole:
        raise DataError(f"{path} was cut off or changed")
