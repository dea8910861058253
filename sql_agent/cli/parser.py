"""The form that the help of every command has, and the types of its arguments."""

from __future__ import annotations

import argparse
from typing import TypedDict

NOT_ADVICE = "For research on retrieval, not medical advice."


class HelpText(TypedDict):
    """Keyword arguments of ArgumentParser and of add_parser."""

    description: str
    epilog: str
    formatter_class: type[argparse.HelpFormatter]


def help_text(description: str, examples: str) -> HelpText:
    """A description and some examples, both shown with the line breaks that they have."""
    return {
        "description": description.strip(),
        "epilog": "examples:\n" + examples.strip("\n") + f"\n\n{NOT_ADVICE}",
        "formatter_class": argparse.RawDescriptionHelpFormatter,
    }


def positive(text: str) -> int:
    """A whole number from 1, as an argument's type."""
    try:
        number = int(text)
    except ValueError:
        number = 0
    if number < 1:
        raise argparse.ArgumentTypeError(f"{text!r} is not a whole number from 1")
    return number
