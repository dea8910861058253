"""A run whose terminal is closed saves what it did."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from pathlib import Path

import psutil
import pytest

from tests.support.processes import SCRIPT, assert_nothing_left, lines
from tests.support.tiny_training import tiny_training


@pytest.mark.slow
def test_a_terminal_that_is_closed_stops_a_run_after_saving(tmp_path: Path, tiny_model_folder: Path) -> None:
    run = tmp_path / "runs" / "r"
    arguments = [*tiny_training(tmp_path, tiny_model_folder), "train.steps=500", "train.save_every=100"]
    screen, keyboard = os.openpty()
    process = subprocess.Popen(
        ["setsid", "--ctty", sys.executable, str(SCRIPT), *arguments],
        stdin=keyboard,
        stdout=keyboard,
        stderr=keyboard,
    )
    os.close(keyboard)
    until = time.monotonic() + 240
    while len(lines(run / "metrics.jsonl")) < 2 and time.monotonic() < until:
        time.sleep(0.1)
    family = [psutil.Process(process.pid), *psutil.Process(process.pid).children(recursive=True)]
    os.close(screen)
    assert process.wait(timeout=60) == 130
    done = len(lines(run / "metrics.jsonl"))
    saved = run / "checkpoints" / f"step-{done:06d}" / "state.json"
    assert done >= 2 and json.loads(saved.read_text(encoding="utf-8"))["step"] == done
    assert_nothing_left(family, set())
