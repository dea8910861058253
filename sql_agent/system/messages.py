"""Build messages for people: text that is safe to print, errors of pydantic, and outages of services."""

from __future__ import annotations

import threading
import unicodedata
from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING

from pydantic import ValidationError

if TYPE_CHECKING:
    from pydantic_core import ErrorDetails

# Seconds for which requests to a silent database or model server are repeated; a restart takes less.
OUTAGE_S = 60.0


def printable(text: str) -> str:
    """Replace each control character of `text` except line breaks, and each format character, with a space.

    Otherwise a terminal would execute escape sequences from a model, a server or a database, and direction marks
    (U+202E) would change the order of the text.
    """
    return "".join(" " if _is_unsafe(character) else character for character in text)


def _is_unsafe(character: str) -> bool:
    return character != "\n" and unicodedata.category(character) in {"Cc", "Cf"}


def first_of(lines: Iterable[str], count: int, more: str = "more") -> list[str]:
    """Return the first `count` of `lines`, and a line such as "and 7 more" if lines are left out."""
    listed = list(lines)
    left = len(listed) - count
    return [*listed[:count], *([f"and {left} {more}"] if left > 0 else [])]


def first_problem(error: ValidationError, names: Mapping[str, str] | None = None) -> str:
    """Return the first problem of `error` as "field: reason", such as "levels.0.name: Field required".

    The result has no field if the whole value is wrong. `names` replaces the first part of a field, for example by the
    name of a column.
    """
    problem = error.errors(include_url=False)[0]
    place = [str(part) for part in problem["loc"]]
    if place and names:
        place[0] = names.get(place[0], place[0])
    return ": ".join([*([".".join(place)] if place else []), reason(problem)])


def reason(problem: ErrorDetails) -> str:
    """Return the message of one of the `errors()` of a ValidationError, without names of Python classes."""
    if problem["type"] == "model_type":
        return "not an object"
    return problem["msg"].removeprefix("Value error, ")


class Outage:
    """Reports the start and the end of each outage of the service `name` once, with `say`; thread-safe."""

    def __init__(self, name: str, say: Callable[[str], object]) -> None:
        self._name = name
        self._say = say
        self._lasts = False
        self._lock = threading.Lock()

    def begin(self, how: str) -> None:
        """Report the outage, unless reported already; `how` is such as "does not answer"."""
        if self._changes_to(lasts=True):
            self._say(f"{self._name} {how}")

    def end(self) -> None:
        """Report that the service answers again, if its outage was reported."""
        if self._changes_to(lasts=False):
            self._say(f"{self._name} answers again.")

    def _changes_to(self, *, lasts: bool) -> bool:
        with self._lock:
            changes, self._lasts = self._lasts is not lasts, lasts
            return changes
