"""Say what is wrong with a command of the documentation: its flags, its settings, the files that it names."""

from __future__ import annotations

import argparse
import io
import os
import re
import runpy
import subprocess
import sys
import tomllib
from collections.abc import Callable, Iterator
from contextlib import contextmanager, redirect_stderr, redirect_stdout
from functools import cache, partial
from importlib import import_module
from itertools import pairwise
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest

from sql_agent.__main__ import COMMANDS
from sql_agent.config.settings import PREFIX, SECTIONS, load_settings, section_fields
from sql_agent.errors import SqlAgentError
from tests.support.documents import Command
from tests.support.processes import ROOT

SETTINGS = {name for section in ("general", *SECTIONS) for name in section_fields(section)}
FOLDERS = ("sql_agent", "utils", "scripts", "benchmarks", "docs", "tests", "docker")
_PROGRAMS = {  # of others, and of the shell
    ".", "agl", "cat", "cd", "cp", "curl", "docker", "export", "git", "mkdir", "nvidia-smi", "pip", "pre-commit",
    "pytest", "python", "ray", "uv", "wandb",
}  # fmt: skip
_WRAPPERS = (
    "scripts/load_mysql.sh",
    "scripts/export_checkpoint.sh",
    "sql_agent/train.sh",
)  # these run a command of ours
_SETTING = re.compile(r"[a-z]\w*(?:\.\w+)*=")
_INCOMPLETE = re.compile(r"arguments are required|expected one argument")
_PLACEHOLDER = re.compile(r"^[A-Z]+/")  # of a folder that the user names


class _UnderstoodError(Exception):
    """The words of a command were parsed."""


def fault_of(command: Command) -> str | None:
    """Return what is wrong with `command`, None where nothing is."""
    fault = _fault_of(command)
    return None if fault and command.is_only_named and _INCOMPLETE.search(fault) else fault


def _fault_of(command: Command) -> str | None:
    for name in command.variables:
        if not (is_variable(name) or name.islower()):
            return f"nothing reads the variable {name}"
    program, *words = command.words or ["export"]
    if program == "bash":
        program, *words = words
    if program == "python" and words[:2] == ["-m", "sql_agent"]:
        program, words = "sql-agent", words[2:]
    if program == "python" and words and words[0].endswith(".py"):
        program, *words = words
    if program == "sql-agent":
        return _of_our_command(words)
    if program in _PROGRAMS:
        return _of_their_program(program, words)
    path = ROOT / _PLACEHOLDER.sub("scripts/", program)
    if not path.is_file():
        return f"there is no {program}"
    if path.suffix == ".py":
        return _refusal(partial(_run_script, path), words)
    if program in _WRAPPERS:
        return _of_our_command(_handed_on(path, words, command.variables))
    unknown = [word for word in words if word.startswith("-") and word not in path.read_text(encoding="utf-8")]
    return f"{program} knows no {unknown[0]}" if unknown else None


def is_variable(name: str) -> bool:
    """Whether something of ours reads the environment variable `name`."""
    if name.startswith(PREFIX):
        section, _, key = name.removeprefix(PREFIX).lower().rpartition("__")
        return (f"{section}.{key}" if section else key) in SETTINGS
    return re.search(rf"\b{name}\b", _sources()) is not None


def is_setting(word: str) -> bool:
    """Whether `word`, such as train.lr, train.lr=1e-5 or train.lr=N, names a setting that takes this value."""
    name, _, value = word.partition("=")
    value = re.sub("^N$", "1", value.partition("\\|")[0])  # the first of several in a table
    return name.startswith("verl.config.") or (name in SETTINGS and not (value and _wrong_setting([f"{name}={value}"])))


@cache
def flags() -> set[str]:
    """All flags of all commands, scripts and benchmarks, and those of docker and agl that the pages name."""
    text = "".join(
        path.read_text(encoding="utf-8")
        for folder in ("sql_agent/cli", "benchmarks", "scripts", "utils", "docker")
        for path in (ROOT / folder).glob("*.*")
    )
    return set(re.findall(r"--[a-z][a-z-]+", text)) | {"--build-arg", "--isolation", "--mongo-uri", "--secret"}


def exists(word: str) -> bool:
    """Whether the file or folder `word` is in the project; a part of its path, from any folder on, is enough."""
    wanted = "/" + word.strip("/")
    return any(path.endswith(wanted) for path in _paths())


@contextmanager
def only_parsing() -> Iterator[None]:
    """Inside the context a command ends with an exception as soon as its words are understood."""
    with pytest.MonkeyPatch.context() as patch:
        parser = argparse.ArgumentParser
        for method in ("parse_args", "parse_intermixed_args"):
            parse = getattr(parser, method)

            def parse_only(*arguments: Any, parse: Callable[..., Any] = parse) -> None:
                parse(*arguments)
                raise _UnderstoodError

            patch.setattr(parser, method, parse_only)
        patch.setattr("sql_agent.config.settings.variable", lambda _: "any.db")  # what env:NAME stands for
        yield


def _of_our_command(words: list[str]) -> str | None:
    name, *words = words
    if name not in COMMANDS:
        return f"there is no command {name}" if not name.startswith("-") else None
    return _refusal(import_module(f"sql_agent.cli.{name}").main, words)


def _of_their_program(program: str, words: list[str]) -> str | None:
    """Look only at what of ours they are given: files, and the extras of the installation."""
    extras = {word.partition("[")[2].rstrip("]") for word in words if word.startswith(".[")}
    if program == "uv":
        extras |= {after for word, after in pairwise(words) if word == "--extra"}
    known = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]["optional-dependencies"]
    missing = [f"extra {extra}" for extra in extras if extra not in known]
    missing += [word for word in words if word.split("/")[0] in FOLDERS and "/" in word and not exists(word)]
    return f"there is no {missing[0]}" if missing else None


def _refusal(main: Callable[[list[str]], object], words: list[str]) -> str | None:
    """Return why the parser of `main` or the settings refuse `words`, in which N stands for a number."""
    words = [re.sub(r"^N$|(?<==)N$", "1", word) for word in words]
    printed = io.StringIO()
    try:
        with only_parsing(), redirect_stderr(printed), redirect_stdout(io.StringIO()):
            main(words)
    except _UnderstoodError:
        return _wrong_setting([word for word in words if _SETTING.match(word)])
    except SystemExit as stop:  # --help ends with 0
        return printed.getvalue().strip().splitlines()[-1] if stop.code else None
    return "it parses no arguments"


def _wrong_setting(overrides: list[str]) -> str | None:
    try:
        load_settings(overrides)
    except SqlAgentError as error:
        return error.message
    return None


def _run_script(path: Path, argv: list[str]) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sys, "argv", [str(path), *argv])
        patch.setattr(sys, "path", [str(path.parent), *sys.path])
        runpy.run_path(str(path), run_name="__main__")


def _handed_on(path: Path, words: list[str], variables: dict[str, str]) -> list[str]:
    """Return the words behind `sql-agent` of the command that the shell script `path` runs."""
    with TemporaryDirectory() as folder:
        python = Path(folder) / "python"
        python.write_text('#!/bin/sh\nprintf "%s\\n" "$@"\n', encoding="utf-8")
        python.chmod(0o755)
        (Path(folder) / "python3").symlink_to(python)
        environment = os.environ | variables | {"PATH": f"{folder}{os.pathsep}{os.environ['PATH']}"}
        ran = subprocess.run(
            ["bash", str(path), *words], capture_output=True, text=True, check=True, timeout=60, env=environment
        )
    program, *argv = ran.stdout.splitlines()
    return ["train", *argv] if program.endswith("train_sql_agent.py") else argv[1:]


@cache
def _sources() -> str:
    """The text of all that reads environment variables."""
    files = [ROOT / "env_template", *(ROOT / "sql_agent").rglob("*.py"), *(ROOT / "sql_agent").glob("*.sh")]
    files += [*(ROOT / "scripts").iterdir(), *(ROOT / "tests").rglob("*.py"), *(ROOT / "benchmarks").glob("*.py")]
    return "\n".join(path.read_text(encoding="utf-8") for path in files if path.is_file())


@cache
def _paths() -> list[str]:
    folders = [ROOT / folder for folder in FOLDERS]
    inside = [path for folder in folders for path in (folder, *folder.rglob("*"))]
    return [f"/{path.relative_to(ROOT).as_posix()}" for path in (*ROOT.iterdir(), *inside)]
