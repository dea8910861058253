"""The commands of the tutorial do, in a copy of the project, what the tutorial says."""

from __future__ import annotations

import os
import re
import shutil
import sys
from pathlib import Path

import pytest

from tests.support.documents import blocks
from tests.support.processes import ROOT, run_command

# The commands are those of the page; only the model, what it may write and the number of questions are smaller.
FEWER = {"--style template": "--style template --per-type 20", "-n 30": "-n 4", "-n 21": "-n 7"}
SMALLER = {
    "SQL_AGENT_LOCAL__MAX_CONTEXT": "8192",  # the tiny model reads bytes
    "SQL_AGENT_AGENT__MAX_TOKENS": "8",
    "SQL_AGENT_SFT__STEPS": "1",
    "SQL_AGENT_SFT__BATCH": "1",
    "SQL_AGENT_TRAIN__QUESTIONS_PER_STEP": "1",
    "SQL_AGENT_TRAIN__GROUP_SIZE": "2",
    "SQL_AGENT_DATA__VAL_QUESTIONS": "2",
}


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    """A copy of what the commands use, with `sql-agent` in the folder bin."""
    folder = tmp_path / "checkout"
    for name in ("sql_agent", "utils", "scripts"):
        shutil.copytree(ROOT / name, folder / name, ignore=shutil.ignore_patterns("__pycache__"))
    shutil.copy(ROOT / "pyproject.toml", folder)
    command = folder / "bin" / "sql-agent"
    command.parent.mkdir()
    command.write_text(f'#!/bin/sh\nexec {sys.executable} -m sql_agent "$@"\n', encoding="utf-8")
    command.chmod(0o755)
    return folder


@pytest.mark.slow
def test_the_tutorial_leads_from_a_database_to_a_trained_model(
    checkout: Path, tiny_model_folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(checkout)
    monkeypatch.setenv(
        "PATH", f"{checkout / 'bin'}{os.pathsep}{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    )
    environment = {**SMALLER, "SQL_AGENT_MODEL": str(tiny_model_folder), "PYTHONPATH": str(checkout)}
    exports: list[str] = []  # each block runs in a shell of its own, where a reader has one terminal
    for block in blocks(ROOT / "docs" / "tutorial.md"):
        if block.language == "bash" and block.is_run:
            script = checkout / "block.sh"
            text = re.sub("|".join(FEWER), lambda found: FEWER[found[0]], block.text)
            script.write_text("\n".join([*exports, text]), encoding="utf-8")
            exports += [line for line in block.text.splitlines() if line.startswith("export ")]
            result = run_command("bash", "-euo", "pipefail", script, **environment)
            assert result.returncode == 0, f"line {block.line}:\n{block.text}\n{result.stdout}\n{result.stderr}"
    assert (checkout / "runs/first/report.html").is_file()
    assert len(list((checkout / "runs").glob("eval-*/evaluation.html"))) == 2
    assert len(list((checkout / "runs").glob("compare-*/comparison.md"))) == 1
    assert (checkout / "answerer/config.json").is_file()
