"""`sql-agent settings` shows all settings, and docs/settings.md is what it shows."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from sql_agent.__main__ import main
from sql_agent.cli.settings import PAGE_COMMAND
from sql_agent.config.settings import GENERAL, SECTIONS, section_fields

ROOT = Path(__file__).resolve().parents[2]


def shown(capsys: pytest.CaptureFixture[str], *arguments: str) -> str:
    assert main(["settings", *arguments]) == 0
    return capsys.readouterr().out


def test_all_settings_are_listed_and_fit_a_terminal_of_80_columns(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    page = shown(capsys)
    lines = page.splitlines()
    assert max(map(len, lines)) <= 80
    for section in (GENERAL, *SECTIONS):
        for name in section_fields(section):
            head = page[page.index(f"\n{name}  ") :].partition("\n    ")[0]  # may take two lines
            assert ", default " in head, name
    assert "TEACHER_API_KEY" in lines


def test_one_section_shows_type_default_and_meaning_and_nothing_of_the_others(
    capsys: pytest.CaptureFixture[str],
) -> None:
    page = shown(capsys, "train")
    assert "train.lr  float > 0, default 5e-6 (verl: 2e-6)\n    learning rate of AdamW, constant" in page
    assert "judge." not in page


def test_an_unknown_section_is_an_error_that_names_the_sections(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit, match="2"):
        main(["settings", "jugde"])
    assert "'judge'" in capsys.readouterr().err


def test_the_page_in_docs_is_up_to_date(capsys: pytest.CaptureFixture[str]) -> None:
    kept = (ROOT / "docs" / "settings.md").read_text(encoding="utf-8")
    assert kept == shown(capsys, "--markdown"), f"write it again: {PAGE_COMMAND}"


def test_the_page_holds_no_path_of_this_machine() -> None:
    page = (ROOT / "docs" / "settings.md").read_text(encoding="utf-8")
    assert str(ROOT) not in page
    assert "| var/judge-cache |" in page


def test_the_template_of_env_names_settings_that_exist() -> None:
    template = (ROOT / "env_template").read_text(encoding="utf-8")
    known = {name.replace(".", "__").upper() for section in (GENERAL, *SECTIONS) for name in section_fields(section)}
    assert set(re.findall(r"SQL_AGENT_(\w+)", template)) <= known
