"""A command ends with its exit code and one line, whatever its streams, its folder and the moment of an interrupt."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from tests.support.processes import ROOT

SETTINGS = [sys.executable, str(ROOT / "sql_agent" / "__main__.py"), "settings"]
ENVIRONMENT = os.environ | {"PYTHONPATH": str(ROOT)}


def python(code: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=False, timeout=60, env=ENVIRONMENT
    )


def test_an_interrupt_while_a_command_ends_changes_nothing_and_its_last_handlers_run() -> None:
    ended = python("""
import atexit, os, signal
from sql_agent.cli.command import exits_cleanly, leave

def last():
    os.kill(os.getpid(), signal.SIGINT)
    print("handled")

def main(_):
    atexit.register(last)
    print("done")
    return 0

leave(exits_cleanly(main))
""")
    assert (ended.returncode, ended.stdout, ended.stderr) == (0, "done\nhandled\n", "")


def test_a_current_folder_that_was_removed_is_said_to_be(tmp_path: Path) -> None:
    command = " ".join(f"'{part}'" for part in SETTINGS)
    removed = f"mkdir '{tmp_path}/gone' && cd '{tmp_path}/gone' && rmdir '{tmp_path}/gone' && {command}"
    result = subprocess.run(
        ["bash", "-c", removed], capture_output=True, text=True, check=False, timeout=60, env=ENVIRONMENT
    )
    assert result.returncode == 2
    assert result.stderr == "error: the current folder was removed\n  next: cd to a folder that exists\n"


def test_a_small_limit_of_the_shell_on_files_does_not_keep_queries_from_running(tmp_path: Path) -> None:
    code = f"""
import resource
from pathlib import Path
from sql_agent.tasks.medical.tables import SCHEMA
from sql_agent.database import open_database
from sql_agent.schemas import QueryLimits
from tests.support.small_database import make_database
path = make_database(Path({str(tmp_path)!r}) / "medical.db")
resource.setrlimit(resource.RLIMIT_FSIZE, (4096, 4096))
with open_database(path, SCHEMA, QueryLimits()) as database:
    print(database.query("SELECT form FROM drugs_info WHERE id = 1").status)
"""
    result = python(code)
    assert (result.returncode, result.stdout, result.stderr) == (0, "ok\n", "")
