"""The commands of the tutorial do, in a copy of the project, what the tutorial says."""

from __future__ import annotations

import json
import os
import re
import shutil
import socketserver
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.documents import blocks
from tests.support.prepared_python import PreparedProcess
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


# What `sql-agent` is in the shells: it has the test run the command in a process that need not import all again.
CLIENT = """#!{python} -SE
import json, os, socket, sys
test = socket.socket(socket.AF_UNIX)
test.connect("socket")
stream = test.makefile("rw")
stream.write(json.dumps([sys.argv[1:], dict(os.environ)]) + "\\n")
stream.flush()
code, output = json.loads(stream.readline())
print(output, end="")
sys.exit(code)
"""


class Commands(socketserver.StreamRequestHandler):
    """Runs the command that a client sends, and answers with its exit code and what it printed."""

    def handle(self) -> None:
        arguments, environment = json.loads(self.rfile.readline())
        process = PreparedProcess("sql_agent/__main__.py", arguments, environment, project=Path.cwd())
        output, _ = process.communicate(timeout=300)
        self.wfile.write(json.dumps([process.returncode, output]).encode() + b"\n")


@pytest.fixture
def checkout(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """The working directory: a copy of what the commands use, with `sql-agent` in the folder bin."""
    folder = tmp_path / "checkout"
    for name in ("sql_agent", "utils", "scripts"):
        shutil.copytree(ROOT / name, folder / name, ignore=shutil.ignore_patterns("__pycache__"))
    shutil.copy(ROOT / "pyproject.toml", folder)
    (folder / "tests").symlink_to(ROOT / "tests")
    command = folder / "bin" / "sql-agent"
    command.parent.mkdir()
    command.write_text(CLIENT.format(python=sys.executable), encoding="utf-8")
    command.chmod(0o755)
    monkeypatch.chdir(folder)
    with socketserver.UnixStreamServer("socket", Commands) as server:
        threading.Thread(target=server.serve_forever, args=[0.05], daemon=True).start()
        yield folder
        server.shutdown()


@pytest.mark.slow
def test_the_tutorial_leads_from_a_database_to_a_trained_model(checkout: Path, tiny_model_folder: Path) -> None:
    path = os.pathsep.join([str(checkout / "bin"), str(Path(sys.executable).parent), os.environ["PATH"]])
    environment = {**SMALLER, "SQL_AGENT_MODEL": str(tiny_model_folder), "PATH": path}
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
