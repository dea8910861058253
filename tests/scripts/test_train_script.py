"""The knobs of train.sh reach the settings of their name, and an empty one changes nothing."""

from __future__ import annotations

import os
from pathlib import Path

from tests.support.processes import ROOT, run_command

SCRIPT = ROOT / "sql_agent" / "train.sh"


def test_each_knob_sets_what_it_is_named_for(tmp_path: Path) -> None:
    knobs = {"LR": "fast", "BATCH_SIZE": "few", "ROLLOUTS": "1", "STEPS": "0"}
    result = run_command("bash", SCRIPT, "--ci", **knobs)
    assert result.returncode == 2
    settings = ("train.lr='fast'", "train.questions_per_step='few'", "train.group_size='1'", "train.steps='0'")
    assert [setting for setting in settings if setting not in result.stderr] == []


def test_the_model_is_named_and_further_arguments_are_passed_on(tmp_path: Path) -> None:
    python = tmp_path / "python"
    python.write_text('#!/bin/sh\nshift\nfor argument in "$@"; do echo "<$argument>"; done\n')
    python.chmod(0o755)
    path = f"{tmp_path}{os.pathsep}{os.environ['PATH']}"
    command = ("bash", SCRIPT, "--ci", "run_name=a b")
    assert run_command(*command, PATH=path, LR="").stdout.splitlines() == ["<--ci>", "<run_name=a b>"]
    assert run_command(*command, PATH=path, MODEL="a model").stdout.splitlines()[0] == "<model=a model>"
