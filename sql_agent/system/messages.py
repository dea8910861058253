"""Make messages for people: safe to print, about what pydantic found wrong, and about outages."""

from __future__ import annotations

import threading
import unicodedata
from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING

from pydantic import ValidationError

if TYPE_CHECKING:
    from pydantic_core import ErrorDetails

# How long a database or model server that does not answer is asked again: a server restarts in less.
OUTAGE_S = 60.0


def printable(text: str) -> str:
    """Replace each control character of `text` except line breaks, and each format character, with a space.

    A terminal would act on an escape sequence from a model, a server or a database, and show a text that holds marks
    of direction (U+202E) in another order.
    """
    return "".join(" " if _is_unsafe(character) else character for character in text)


def _is_unsafe(character: str) -> bool:
    return character != "\n" and unicodedata.category(character) in {"Cc", "Cf"}


def first_of(lines: Iterable[str], count: int, more: str = "more") -> list[str]:
    """Return the first `count` of `lines`, and where there are more a line such as "and 7 more"."""
    listed = list(lines)
    left = len(listed) - count
    return [*listed[:count], *([f"and {left} {more}"] if left > 0 else [])]


def first_problem(error: ValidationError, names: Mapping[str, str] | None = None) -> str:
    """Return the first problem of `error` as "place: reason", such as "levels.0.name: Field required".

    There is no place when the whole value is wrong. `names` replace the first part of the place, such as a field by
    its column.
    """
    problem = error.errors(include_url=False)[0]
    place = [str(part) for part in problem["loc"]]
    if place and names:
        place[0] = names.get(place[0], place[0])
    return ": ".join([*([".".join(place)] if place else []), reason(problem)])


def reason(problem: ErrorDetails) -> str:
    """Return what is wrong in one of the `errors()` of a ValidationError, without the names of our classes."""
    if problem["type"] == "model_type":
        return "not an object"
    return problem["msg"].removeprefix("Value error, ")


class Outage:
    """Reports once, through `say`, that the service `name` does not answer, and once that it answers again.

    Its methods may be called from several threads.
    """

    def __init__(self, name: str, say: Callable[[str], object]) -> None:
        self._name = name
        self._say = say
        self._lasts = False
        self._lock = threading.Lock()

    def begin(self, how: str) -> None:
        """Say `how`, such as "does not answer", unless the outage was reported already."""
        if self._changes_to(lasts=True):
            self._say(f"{self._name} {how}")

    def end(self) -> None:
        """Say that the service answers again, if its outage was reported."""
        if self._changes_to(lasts=False):
            self._say(f"{self._name} answers again.")

    def _changes_to(self, *, lasts: bool) -> bool:
        with self._lock:
            changes, self._lasts = self._lasts is not lasts, lasts
            return changes
