"""A command that cannot listen where it is told to says so in two lines, before anything slow."""

from __future__ import annotations

from pathlib import Path

import pytest

from sql_agent.cli.command import run_command
from sql_agent.system.servers import bind
from tests.support.small_database import make_database
from tests.support.small_run import make_run


@pytest.mark.parametrize(
    ("command", "arguments", "said"),
    [
        ("store", ["--port", "70000"], "there is no address 127.0.0.1:70000"),
        ("store", ["--port", "TAKEN"], "is taken"),
        ("report", ["RUN", "--serve", "--port", "70000"], "there is no address 127.0.0.1:70000"),
        ("mcp", ["--http", "TAKEN", "database.path=DB"], "is taken"),
    ],
)
def test_an_address_that_is_taken_or_none_is_exit_code_2(
    command: str, arguments: list[str], said: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with bind() as taken:
        taken.listen()
        values = {"TAKEN": str(taken.getsockname()[1]), "RUN": str(make_run(tmp_path / "night"))}
        values |= {"database.path=DB": f"database.path={make_database(tmp_path / 'medical.db')}"}
        assert run_command(command, [values.get(word, word) for word in arguments]) == 2
    error = capsys.readouterr().err
    assert said in error and "  next: " in error and "Serving at" not in error
