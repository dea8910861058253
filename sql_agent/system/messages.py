"""Build messages for people: text that is safe to print, errors of pydantic, and outages of services."""

from __future__ import annotations

import threading
import unicodedata
from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING

from pydantic import ValidationError

if TYPE_CHECKING:
    from pydantic_core import ErrorDetails

# A request to a database or model server that is down is repeated for this many seconds; a restart takes less.
OUTAGE_S = 60.0


def printable(text: str) -> str:
    """Return `text` with a space for each control character, except line breaks, and for each format character.

    Otherwise a terminal would execute escape sequences from a model, a server or a database, and direction marks such
    as U+202E would change the order of the text.
    """
    return "".join(" " if c != "\n" and unicodedata.category(c) in {"Cc", "Cf"} else c for c in text)


def first_of(lines: Iterable[str], count: int, more: str = "more") -> list[str]:
    """Return the first `count` of `lines`, and a line such as "and 7 more" if lines are left out."""
    listed = list(lines)
    left = len(listed) - count
    return [*listed[:count], f"and {left} {more}"] if left > 0 else listed


def first_problem(error: ValidationError, names: Mapping[str, str] | None = None) -> str:
    """Return the first problem of `error` as "field: reason", such as "levels.0.name: Field required".

    If the whole value is invalid, only the reason is returned. `names` maps the first part of a field name to the name
    for the message, such as that of a column.
    """
    problem = error.errors(include_url=False)[0]
    place = [str(part) for part in problem["loc"]]
    if place and names:
        place[0] = names.get(place[0], place[0])
    return f"{'.'.join(place)}: {reason(problem)}" if place else reason(problem)


def reason(problem: ErrorDetails) -> str:
    """Return the message of `problem`, an item of `ValidationError.errors()`, without names of Python classes."""
    if problem["type"] == "model_type":
        return "not an object"
    return problem["msg"].removeprefix("Value error, ")


class Outage:
    """Reports with `say` when the service `name` goes down and when it comes back; thread-safe."""

    def __init__(self, name: str, say: Callable[[str], object]) -> None:
        self._name = name
        self._say = say
        self._lasts = False
        self._lock = threading.Lock()

    def begin(self, how: str) -> None:
        """Report once per outage that the service is down: its name and `how`, such as "does not answer"."""
        if self._changes_to(lasts=True):
            self._say(f"{self._name} {how}")

    def end(self) -> None:
        """Report that the service answers again, if an outage was reported."""
        if self._changes_to(lasts=False):
            self._say(f"{self._name} answers again.")

    def _changes_to(self, *, lasts: bool) -> bool:
        with self._lock:
            changes, self._lasts = self._lasts is not lasts, lasts
            return changes
