"""A run whose terminal is closed saves what it did."""

from __future__ import annotations

import json
import os
from pathlib import Path

import psutil
import pytest

from tests.support.processes import ROOT, assert_nothing_left, lines, start, wait_for
from tests.support.tiny_training import tiny_training

SCRIPT = ROOT / "tests" / "support" / "train_in_terminal.py"


@pytest.mark.slow
def test_a_terminal_that_is_closed_stops_a_run_after_saving(tmp_path: Path, tiny_model_folder: Path) -> None:
    run = tmp_path / "runs" / "r"
    arguments = [*tiny_training(tmp_path, tiny_model_folder), "train.steps=500", "train.save_every=100"]
    screen, keyboard = os.openpty()
    process = start(arguments, script=SCRIPT, TERMINAL=os.ttyname(keyboard))
    wait_for(lambda: len(lines(run / "metrics.jsonl")) >= 2, process)
    os.close(keyboard)
    family = [psutil.Process(process.pid), *psutil.Process(process.pid).children(recursive=True)]
    os.close(screen)
    assert process.wait(timeout=60) == 130
    done = len(lines(run / "metrics.jsonl"))
    saved = run / "checkpoints" / f"step-{done:06d}" / "state.json"
    assert done >= 2 and json.loads(saved.read_text(encoding="utf-8"))["step"] == done
    assert_nothing_left(family, set())
