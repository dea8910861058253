"""What the page by symptom tells people to type exists: settings, commands, flags and files, in both languages."""

from __future__ import annotations

import argparse
import re
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest

from sql_agent.__main__ import COMMANDS
from sql_agent.config.settings import SECTIONS, section_fields

ROOT = Path(__file__).resolve().parents[1]
PAGES = [ROOT / "docs" / name for name in ("troubleshooting.md", "troubleshooting.zh-CN.md")]
SETTINGS = {name for section in SECTIONS for name in section_fields(section)}


@pytest.mark.parametrize("page", PAGES, ids=lambda path: path.name)
def test_every_setting_of_the_page_exists(page: Path) -> None:
    named = set(re.findall(rf"`((?:{'|'.join(SECTIONS)})\.\w+)", page.read_text(encoding="utf-8")))
    assert len(named) > 20
    assert named <= SETTINGS


class UnderstoodError(Exception):
    """The words of a command were parsed."""


@pytest.mark.parametrize("page", PAGES, ids=lambda path: path.name)
def test_every_command_of_the_page_is_understood(page: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    parse = argparse.ArgumentParser.parse_known_args

    def parse_only(self: argparse.ArgumentParser, *arguments: Any, **named: Any) -> None:
        parse(self, *arguments, **named)  # exits where the words are wrong
        raise UnderstoodError

    commands = re.findall(r"(?:^|`)(sql-agent [^#`\n]*)", page.read_text(encoding="utf-8"), re.MULTILINE)
    assert len(commands) > 5
    for command in commands:
        _, name, *words = command.split()
        assert name in COMMANDS
        main = import_module(f"sql_agent.cli.{name}").main
        with monkeypatch.context() as patched, pytest.raises(UnderstoodError):
            for method in ("parse_known_args", "parse_known_intermixed_args"):
                patched.setattr(argparse.ArgumentParser, method, parse_only)
            main(words)


def test_both_languages_have_the_same_symptoms_and_settings() -> None:
    english, chinese = (page.read_text(encoding="utf-8") for page in PAGES)
    assert english.count("\n## ") == chinese.count("\n## ")
    assert sorted(set(re.findall(r"`(\w+\.\w+)", english))) == sorted(set(re.findall(r"`(\w+\.\w+)", chinese)))
