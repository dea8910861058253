"""Make texts of others safe to print."""

from __future__ import annotations

import re

_CONTROL = re.compile(r"[\x00-\x09\x0b-\x1f\x7f-\x9f]")


def printable(text: str) -> str:
    """Return `text` with each control character but the line break as a blank.

    A terminal would act on an escape sequence that a model, a server or a database wrote.
    """
    return _CONTROL.sub(" ", text)
