"""Checkpoints of a local run: a Hugging Face folder, the optimizer, the step, and the SHA-256 of each file."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError

from sql_agent.errors import TrainingError
from sql_agent.runs.checkpoints import digests, how_to_go_on, local_checkpoint, local_checkpoints
from sql_agent.system.files import sync, sync_tree
from sql_agent.system.resources import free_disk, shown_size
from sql_agent.training.policy.model import Policy


def save(run_folder: Path, step: int, policy: Policy, optimizer: Any, *, keep: int) -> Path:
    """Write `checkpoints/step-N` with `model/`, `optimizer.pt` and `state.json`, and return it; keep the newest `keep`.

    The folder is written under another name and renamed when all of it is on the disk, so it is complete whenever it
    exists, also after a power cut. Raises TrainingError when it cannot be written; the checkpoints before it stay.
    """
    target = local_checkpoint(run_folder, step)
    partial = target.with_name(target.name + ".partial")
    shutil.rmtree(partial, ignore_errors=True)
    try:
        partial.mkdir(parents=True)
        policy.save(partial / "model")
        torch.save(optimizer.state_dict(), partial / "optimizer.pt")
        (partial / "state.json").write_text(
            json.dumps({"step": step, "sha256": digests(partial)}, indent=2) + "\n", encoding="utf-8"
        )
        sync_tree(partial)
    except (OSError, RuntimeError, SafetensorError) as error:  # torch and safetensors hide the OSError
        shutil.rmtree(partial, ignore_errors=True)
        free = shown_size(free_disk(run_folder))
        raise TrainingError(
            f"could not save the checkpoint of step {step} to {target}, where {free} are free: "
            f"{str(error).splitlines()[0]}",
            hint=f"free space on that disk, then {how_to_go_on(run_folder)}",
        ) from error
    shutil.rmtree(target, ignore_errors=True)
    partial.replace(target)
    sync(target.parent)
    for old in list(local_checkpoints(run_folder).values())[:-keep]:
        shutil.rmtree(old)
    return target
