"""Parts that all commands share: help pages, flags, argument types, and the exit after errors and interrupts."""

from __future__ import annotations

import argparse
import atexit
import os
import re
import signal
import sys
import threading
from collections.abc import Callable, Mapping, Sequence
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, NoReturn, TypeAlias, get_args, get_origin

from sql_agent.errors import ConfigError, SqlAgentError
from sql_agent.system.files import named_disk_errors
from sql_agent.system.messages import printable
from sql_agent.system.process import INTERRUPTED, STOPPING, end_interrupted, say_interrupted, stopping_signals

if TYPE_CHECKING:
    from sql_agent.database import Source

NOT_ADVICE = "For research on retrieval, not medical advice."
# A URL with a password is given in a variable, because every user of a machine can list process arguments.
SERVER = "mysql+pymysql://USER@HOST/DATABASE, or env:NAME for the URL in that variable"
DATABASE = f"SQLite file, {SERVER}"
SETS = "settings."  # in parsed arguments, the prefix of the dotted name of a setting
Commands: TypeAlias = "argparse._SubParsersAction[argparse.ArgumentParser]"
_OVERRIDE = re.compile(r"[^\s=]+=")


def run_command(name: str, argv: Sequence[str] | None = None) -> int:
    """Import the module `name` of cli/, run its `main(argv)` with `exits_cleanly`, and return the exit code."""
    return exits_cleanly(lambda argv: import_module(f"sql_agent.cli.{name}").main(argv), argv)


def exits_cleanly(main: Callable[[Sequence[str] | None], int], argv: Sequence[str] | None = None) -> int:
    """Run `main(argv)` and return its exit code.

    A SqlAgentError, a full disk or an unusable file is printed with a hint, and the exit code is 2. After Ctrl-C,
    SIGTERM or a closed terminal the process ends with exit code 130, and this function does not return.
    """
    if threading.current_thread() is threading.main_thread():
        for number in stopping_signals():
            signal.signal(number, signal.default_int_handler)  # raises KeyboardInterrupt
    try:
        with named_disk_errors():
            code = main(argv)
    except SqlAgentError as error:
        print_error(error)
        return 2
    except KeyboardInterrupt:
        end_interrupted(say_interrupted)
    if code == INTERRUPTED:
        end_interrupted()
    return code


def leave(code: int) -> NoReturn:
    """Run the exit handlers and end this process with `code`; signals no longer interrupt it.

    With Python's own exit, an interrupt would print a traceback, and threads of Arrow and torch could crash.
    """
    for number in STOPPING:
        signal.signal(number, signal.SIG_IGN)
    try:
        atexit._run_exitfuncs()
        for stream in (sys.stdout, sys.stderr):
            if stream is not None:  # None if the caller closed the stream
                stream.flush()
    except OSError:  # the reader of the pipe has ended
        code = code or 2
    finally:
        os._exit(code)


def print_error(error: SqlAgentError) -> None:
    print(printable(f"error: {error.message}"), file=sys.stderr)
    if error.hint:
        print(printable(f"  next: {error.hint}"), file=sys.stderr)


def new_parser(name: str, description: str | None, examples: str, **more: Any) -> argparse.ArgumentParser:
    return argparse.ArgumentParser(prog=f"sql-agent {name}", **_help_page(description, examples), **more)


def add_command(
    commands: Commands, name: str, run: Callable[[argparse.Namespace], int], summary: str, *help_page: str
) -> argparse.ArgumentParser:
    """Add the subcommand `name`, which calls `run`; the help of its parent command shows `summary`."""
    parser = commands.add_parser(name, help=summary, **_help_page(*help_page))
    parser.set_defaults(run=run)
    return parser


def _help_page(description: str | None, examples: str) -> dict[str, Any]:
    epilog = "examples:\n" + examples.strip("\n") + f"\n\n{NOT_ADVICE}"
    formatter = argparse.RawDescriptionHelpFormatter  # keeps the line breaks
    return {"description": description, "epilog": epilog, "formatter_class": formatter}


def add_words(parser: argparse.ArgumentParser, what: str = "", meaning: str = "any setting") -> None:
    """Add positional arguments: settings and, if `what` is given, other words of that kind, such as MODEL."""
    metavar = f"{what} | section.key=value" if what else "section.key=value"
    parser.add_argument("words" if what else "overrides", nargs="*", metavar=metavar, help=meaning)


def parse_words(parser: argparse.ArgumentParser, argv: Sequence[str] | None) -> argparse.Namespace:
    """Parse `argv` into `overrides` (`section.key=value`), `flags` (settings that flags set) and other `words`."""
    found = parser.parse_intermixed_args(argv)
    if "words" in found:
        found.overrides = [word for word in found.words if _OVERRIDE.match(word)]
        found.words = [word for word in found.words if word not in found.overrides]
    found.flags = flag_settings(found)
    return found


def add_setting_flags(parser: argparse._ActionsContainer, flags: Mapping[str, str], meaning: str = "") -> None:
    """Add flags that set settings, such as {"--n-gpus": "verl.n_gpus"}.

    Their help is `meaning`, or, without `meaning`, the description of the setting.
    """
    from sql_agent.config.settings import FIELDS, as_text  # noqa: PLC0415  slow to import, and `sql-agent --help` needs none

    for flag, name in flags.items():
        field = FIELDS[name]
        choices = get_args(field.annotation) if get_origin(field.annotation) is Literal else None
        types = (field.annotation, *get_args(field.annotation))  # all types of a union with None
        kind = "N" if int in types else "PATH" if Path in types else "TEXT"
        default = as_text(field.default) if field.default is not None else ""
        text = meaning or f"{field.description}{f' (default: {default})' if default else ''}"
        metavar = None if choices else kind
        parser.add_argument(flag, dest=SETS + name, choices=choices, metavar=metavar, help=text.replace("%", "%%"))


def add_task_flags(parser: argparse.ArgumentParser, more: Mapping[str, str] = {}) -> None:
    flags = {"--task": "task", "--data-dir": "spider.data_dir", "--workflow": "agent.workflow", **more}
    add_setting_flags(parser.add_argument_group("task"), flags)


def flag_settings(arguments: argparse.Namespace) -> dict[str, Any]:
    """Return the values of the flags on the command line, keyed by the dotted name of the setting."""
    return {
        name.removeprefix(SETS): value
        for name, value in vars(arguments).items()
        if name.startswith(SETS) and value is not None
    }


def positive(text: str) -> int:
    if not text.isdecimal() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"{text!r} is not a whole number from 1")
    return int(text)


def share(text: str) -> float:
    if not 0 <= float(text) <= 1:
        raise argparse.ArgumentTypeError(f"{text!r} is not a number from 0 to 1")
    return float(text)


def address(text: str) -> tuple[str, int]:
    """Parse PORT or HOST:PORT; HOST is 127.0.0.1 by default."""
    host, _, port = text.rpartition(":")
    if not port.isdigit() or not 0 < int(port) < 65536:
        raise argparse.ArgumentTypeError(f"{text!r} is not PORT or HOST:PORT")
    return host or "127.0.0.1", int(port)


def database(text: str) -> Source:
    """Parse a path, a URL or env:NAME. No error message contains a password."""
    # Slow to import, and most commands need no database to start.
    from sql_agent.config.settings import variable  # noqa: PLC0415
    from sql_agent.database import parse_source  # noqa: PLC0415

    try:
        return parse_source(variable(text.removeprefix("env:")) if text.startswith("env:") else text)
    except ConfigError as error:
        raise argparse.ArgumentTypeError(str(error)) from error
