"""Share help pages, flags that set a setting, and types of arguments between all commands."""

from __future__ import annotations

import argparse
import re
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias, TypedDict

from sql_agent.errors import ConfigError

if TYPE_CHECKING:
    from sql_agent.database import Source

NOT_ADVICE = "For research on retrieval, not medical advice."
# A URL with a password belongs in a variable: every user of a machine can list the arguments of its processes.
SERVER = "mysql+pymysql://USER@HOST/DATABASE, or env:NAME for the URL in that variable"
DATABASE = f"SQLite file, {SERVER}"
# Flags that set one setting, by their name in the parsed arguments.
_FLAGS = {"lang": "lang", "task": "task", "data_dir": "spider.data_dir", "workflow": "agent.workflow",
          "train_roles": "agent.train_roles"}  # fmt: skip
Commands: TypeAlias = "argparse._SubParsersAction[argparse.ArgumentParser]"
_SETTING = re.compile(r"[^\s=]+=")


class HelpText(TypedDict):
    """Keyword arguments of ArgumentParser and of add_parser."""

    description: str
    epilog: str
    formatter_class: type[argparse.HelpFormatter]


class SettingsParser(argparse.ArgumentParser):
    """Accepts `overrides` between options too; `parse_intermixed_args` does not do that for subcommands."""

    def parse_args(self, args: Any = None, namespace: Any = None) -> Any:
        """Parse `args`, the command line by default; ends the program with exit code 2 when they are wrong."""
        found, rest = self.parse_known_args(args, namespace)
        settings = [word for word in rest if "=" in word and not word.startswith("-") and "overrides" in found]
        if unknown := [word for word in rest if word not in settings]:
            self.error(f"unrecognized arguments: {' '.join(unknown)}")
        if settings:
            found.overrides = [*found.overrides, *settings]
        return found


def help_text(description: str, examples: str) -> HelpText:
    """Build a help page of a description and examples, which keep their line breaks."""
    return {
        "description": description.strip(),
        "epilog": "examples:\n" + examples.strip("\n") + f"\n\n{NOT_ADVICE}",
        "formatter_class": argparse.RawDescriptionHelpFormatter,
    }


def add_command(
    commands: Commands,
    run: Callable[[argparse.Namespace], int],
    name: str,
    summary: str,
    page: HelpText,
) -> argparse.ArgumentParser:
    """Add the subcommand `name`, whose parsed arguments have `run`, the function that takes them."""
    parser = commands.add_parser(name, help=summary, **page)
    parser.set_defaults(run=run)
    return parser


def flag_settings(arguments: argparse.Namespace, more: Mapping[str, str] | None = None) -> dict[str, Any]:
    """Return the settings that flags set, by dotted name; a flag that is not given is left out.

    `more` names the settings of further flags, such as {"n_gpus": "verl.n_gpus"}.
    """
    given = {setting: getattr(arguments, flag, None) for flag, setting in (_FLAGS | dict(more or {})).items()}
    return {setting: value for setting, value in given.items() if value is not None}


def split_words(words: Sequence[str]) -> tuple[list[str], list[str]]:
    """Split positional arguments into settings, `section.key=value`, and other words: models or questions."""
    overrides = [word for word in words if _SETTING.match(word)]
    return overrides, [word for word in words if word not in overrides]


def add_task_flags(parser: argparse.ArgumentParser) -> None:
    """Add --task, --data-dir, --workflow and --train-roles, as settings."""
    group = parser.add_argument_group("task")
    add_task_flag(group)
    group.add_argument("--data-dir", type=Path, metavar="DIR",
                       help="databases and questions of the task spider, laid out as Spider is")  # fmt: skip
    group.add_argument("--workflow", choices=("react", "check-rewrite"),
                       help="react: the model calls the tool until it answers (default); check-rewrite: it writes, "
                       "checks and rewrites a statement")  # fmt: skip
    group.add_argument("--train-roles", metavar="REGEX",
                       help="roles of a workflow that are trained (default: write|rewrite)")  # fmt: skip


def add_task_flag(parser: argparse._ActionsContainer) -> None:
    """Add --task, as a setting."""
    parser.add_argument("--task", metavar="NAME",
                        help="medical (default), spider, or package.module:NAME of your own")  # fmt: skip


def positive(text: str) -> int:
    """Parse a whole number from 1, as the type of an argument."""
    try:
        number = int(text)
    except ValueError:
        number = 0
    if number < 1:
        raise argparse.ArgumentTypeError(f"{text!r} is not a whole number from 1")
    return number


def address(text: str) -> tuple[str, int]:
    """Parse PORT or HOST:PORT, as the type of an argument; the host is 127.0.0.1 by default."""
    host, _, port = text.rpartition(":")
    if not port.isdigit() or not 0 < int(port) < 65536:
        raise argparse.ArgumentTypeError(f"{text!r} is not PORT or HOST:PORT")
    return host or "127.0.0.1", int(port)


def database(text: str) -> Source:
    """Parse the path or URL of a database, or env:NAME, a variable with its URL. No message contains a password."""
    # Slow to import, and most commands need no database to start.
    from sql_agent.config.settings import variable  # noqa: PLC0415
    from sql_agent.database import parse_source  # noqa: PLC0415

    try:
        return parse_source(variable(text.removeprefix("env:")) if text.startswith("env:") else text)
    except ConfigError as error:
        raise argparse.ArgumentTypeError(str(error)) from error
