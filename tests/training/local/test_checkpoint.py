"""A checkpoint is there whole or not at all."""

from __future__ import annotations

import os
import resource
from pathlib import Path

import pytest
import torch

from sql_agent.errors import TrainingError
from sql_agent.runs.checkpoints import last_checkpoint, last_saved_step
from sql_agent.training.local.trainer import save_checkpoint
from sql_agent.training.policy.model import Policy


def test_what_lies_beside_checkpoints_is_no_checkpoint_and_stays(tmp_path: Path, policy: Policy) -> None:
    optimizer = torch.optim.AdamW(policy.model.parameters())
    for name in ("step-000009-backup", "step-000009.partial"):
        (tmp_path / "checkpoints" / name).mkdir(parents=True)
        (tmp_path / "checkpoints" / name / "state.json").touch()
    for step in (1, 2):
        saved = save_checkpoint(tmp_path, step, policy, optimizer, keep=1)
    assert last_checkpoint(tmp_path).parent == saved
    assert last_saved_step(tmp_path) == 2
    left = {folder.name for folder in saved.parent.iterdir()}
    assert left == {"step-000002", "step-000009-backup", "step-000009.partial"}


def test_the_disk_holds_all_of_a_checkpoint_before_it_takes_its_name(
    tmp_path: Path, policy: Policy, monkeypatch: pytest.MonkeyPatch
) -> None:
    held: set[int] = set()  # numbers of files and folders, by which a file keeps its identity when it is renamed
    lacking: list[str] = []
    rename = Path.replace

    def sync(opened: int) -> None:
        held.add(os.fstat(opened).st_ino)

    def replace(source: Path, target: Path) -> Path:
        if target.name == "step-000001":
            lacking.extend(str(path) for path in (source, *source.rglob("*")) if path.stat().st_ino not in held)
        return rename(source, target)

    monkeypatch.setattr(os, "fsync", sync)
    monkeypatch.setattr(Path, "replace", replace)
    saved = save_checkpoint(tmp_path, 1, policy, torch.optim.AdamW(policy.model.parameters()), keep=1)
    assert lacking == []
    assert saved.parent.stat().st_ino in held, "its new name too"


def test_a_disk_that_takes_no_more_leaves_the_checkpoint_before_and_says_so(tmp_path: Path, policy: Policy) -> None:
    optimizer = torch.optim.AdamW(policy.model.parameters())
    saved = save_checkpoint(tmp_path, 1, policy, optimizer, keep=1)
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (20_000, limits[1]))  # less than the weights take
    try:
        with pytest.raises(TrainingError, match="could not save the checkpoint of step 2") as caught:
            save_checkpoint(tmp_path, 2, policy, optimizer, keep=1)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    assert "--resume" in str(caught.value.hint)
    assert last_checkpoint(tmp_path).parent == saved
    assert [folder.name for folder in saved.parent.iterdir()] == [saved.name], "half a checkpoint takes no room"
