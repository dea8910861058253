"""Every command says what it is for, with examples, in 80 columns."""

from __future__ import annotations

from importlib import import_module

import pytest

from sql_agent.__main__ import COMMANDS

PAGES = [[name] for name in COMMANDS] + [
    ["data", "build"], ["data", "import"], ["data", "questions"], ["data", "check"], ["data", "filter"],
    ["data", "facts"], ["judge", "evaluate"],
]  # fmt: skip


@pytest.mark.parametrize("page", PAGES, ids=" ".join)
def test_help_names_the_command_gives_examples_and_fits_80_columns(
    page: list[str], capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    command, *rest = page
    with pytest.raises(SystemExit) as exit_:
        import_module(f"sql_agent.cli.{command}").main([*rest, "--help"])
    output = capsys.readouterr().out
    assert exit_.value.code == 0
    assert output.startswith(f"usage: sql-agent {' '.join(page)} ")
    assert f"\n  sql-agent {' '.join(page)}" in output.partition("examples:")[2]
    assert "not medical advice" in output
    assert max(map(len, output.splitlines())) <= 80
