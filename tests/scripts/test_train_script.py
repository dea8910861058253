"""The knobs of train.sh reach the settings of their name, and an empty one changes nothing."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from tests.support.processes import ROOT, run_command

SCRIPT = ROOT / "sql_agent" / "train.sh"


@pytest.mark.parametrize(
    ("knob", "setting"),
    [
        ({"LR": "fast"}, "train.lr='fast'"),
        ({"BATCH_SIZE": "few"}, "train.questions_per_step='few'"),
        ({"ROLLOUTS": "1"}, "train.group_size='1'"),
        ({"STEPS": "0"}, "train.steps='0'"),
    ],
    ids=str,
)
def test_a_wrong_value_is_refused_under_the_name_of_its_setting(knob: dict[str, str], setting: str) -> None:
    result = run_command("bash", SCRIPT, "--ci", **knob)
    assert result.returncode == 2
    assert setting in result.stderr


def test_the_model_is_named_and_further_arguments_are_passed_on(tmp_path: Path) -> None:
    python = tmp_path / "python"
    python.write_text('#!/bin/sh\nshift\nfor argument in "$@"; do echo "<$argument>"; done\n')
    python.chmod(0o755)
    path = f"{tmp_path}{os.pathsep}{os.environ['PATH']}"
    command = ("bash", SCRIPT, "--ci", "run_name=a b")
    assert run_command(*command, PATH=path, LR="").stdout.splitlines() == ["<--ci>", "<run_name=a b>"]
    assert run_command(*command, PATH=path, MODEL="a model").stdout.splitlines()[0] == "<model=a model>"
