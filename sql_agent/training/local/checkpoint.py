"""Write a checkpoint of a local run, whole or not at all."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError

from sql_agent.errors import TrainingError
from sql_agent.runs.checkpoints import (
    ADAPTERS,
    digests,
    how_to_go_on,
    initial_weights,
    local_checkpoint,
    local_checkpoints,
)
from sql_agent.system.files import sync, sync_tree
from sql_agent.system.resources import free_shown
from sql_agent.training.policy.lora import save_adapters
from sql_agent.training.policy.model import Policy


def save_checkpoint(
    run_folder: Path,
    step: int,
    policy: Policy,
    optimizer: Any,
    *,
    keep: int,
    initial: Callable[[], Any | None] = lambda: None,
) -> Path:
    """Write the checkpoint folder `checkpoints/step-N`, return its path, and delete all but the newest `keep` folders.

    `model/` is a Hugging Face folder, `optimizer.pt` has the optimizer's state, and `state.json` has the step and the
    SHA-256 of each file. With LoRA, `adapter/` has the adapters, which are merged in `model/`. The model that `initial`
    returns, if any, is written once for all checkpoints, to `checkpoints/base`.

    The folder is written and synced to the disk under another name and then renamed, so that a power cut leaves no
    incomplete checkpoint. Raises TrainingError when the folder cannot be written; then the earlier checkpoints stay.
    """
    target = local_checkpoint(run_folder, step)
    partial = target.with_name(target.name + ".partial")
    shutil.rmtree(partial, ignore_errors=True)
    try:
        partial.mkdir(parents=True)
        policy.save(partial / "model")
        if policy.adapters is not None:
            save_adapters(policy.adapters, partial / ADAPTERS)
        base = initial_weights(run_folder)
        if not base.exists() and (model := initial()) is not None:
            replace(policy, model=model, adapters=None).save(base)
            sync_tree(base)
        torch.save(optimizer.state_dict(), partial / "optimizer.pt")
        sha256 = digests(partial) | {f"../{base.name}/{name}": digest for name, digest in digests(base).items()}
        state = json.dumps({"step": step, "sha256": sha256}, indent=2)
        (partial / "state.json").write_text(state + "\n", encoding="utf-8")
        sync_tree(partial)
    except (OSError, RuntimeError, SafetensorError) as error:  # the last two from torch and safetensors
        shutil.rmtree(partial, ignore_errors=True)
        raise TrainingError(
            f"could not save the checkpoint of step {step} to {target}, where {free_shown(run_folder)}: "
            f"{str(error).splitlines()[0]}",
            hint=f"free space on that disk, then {how_to_go_on(run_folder)}",
        ) from error
    shutil.rmtree(target, ignore_errors=True)
    partial.replace(target)
    sync(target.parent)
    for old in list(local_checkpoints(run_folder).values())[:-keep]:
        shutil.rmtree(old)
    return target
