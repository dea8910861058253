"""Share the layout of help pages and the types of arguments between all commands."""

from __future__ import annotations

import argparse
from typing import Any, TypedDict

NOT_ADVICE = "For research on retrieval, not medical advice."


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
