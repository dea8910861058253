"""The installation check is useful without a GPU and names the fix."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from sql_agent.cli.check import check_database, main
from sql_agent.database.local import LocalDatabase
from sql_agent.schemas import QueryAnswer, QueryFailure
from tests.support.small_database import make_database

SCRIPT = Path(__file__).resolve().parents[2] / "utils" / "check_install.py"


def check(folder: Path, database: Path, *flags: str) -> subprocess.CompletedProcess[str]:
    environment = os.environ | {"SQL_AGENT_DATABASE__PATH": str(database)}
    command = [sys.executable, str(SCRIPT), *flags]
    return subprocess.run(
        command, check=False, cwd=folder, env=environment, capture_output=True, text=True, timeout=120
    )


@pytest.mark.slow
def test_a_sound_installation_passes_from_any_folder(tmp_path: Path) -> None:
    result = check(tmp_path, make_database(tmp_path / "medical.db"))
    assert result.returncode == 0, result.stdout + result.stderr
    assert "201 rows in drugs_info" in result.stdout
    for name in ("memory", "disk", "python", "torch", "litellm", "opentelemetry", "judge", "cuda", "verl"):
        assert f"  {name} " in result.stdout


@pytest.mark.slow
def test_what_is_missing_fails_with_its_fix_and_the_rest_is_still_checked(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("SQL_AGENT_DATABASE__PATH", str(tmp_path / "nowhere.db"))
    assert main(["--gpu"]) == 1
    output = capsys.readouterr().out
    lines = {line.split()[1]: line for line in output.splitlines() if len(line.split()) > 1}
    assert lines["database"].startswith("fail")
    assert "sql-agent data build" in lines["database"]
    assert lines["judge"].startswith("ok")
    assert "uv sync --extra gpu" in lines["verl"]
    assert "Traceback" not in output


def test_rows_that_cannot_be_counted_are_told_by_their_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SQL_AGENT_DATABASE__PATH", str(make_database(tmp_path / "medical.db")))
    failed = QueryAnswer(status="error", error=QueryFailure(kind="timeout", message="it took too long", hint="wait"))
    monkeypatch.setattr(LocalDatabase, "query", lambda *_: failed)
    checked = check_database()
    assert (checked.verdict, checked.fix) == ("fail", "wait") and "it took too long" in checked.found
