"""Make messages for people: safe to print, and saying what pydantic found wrong."""

from __future__ import annotations

import unicodedata
from collections.abc import Mapping
from typing import TYPE_CHECKING

from pydantic import ValidationError

if TYPE_CHECKING:
    from pydantic_core import ErrorDetails


def printable(text: str) -> str:
    """Replace each control character of `text` except line breaks, and each format character, with a space.

    A terminal would act on an escape sequence from a model, a server or a database, and show a text that holds marks
    of direction (U+202E) in another order.
    """
    return "".join(" " if _is_unsafe(character) else character for character in text)


def _is_unsafe(character: str) -> bool:
    return character != "\n" and unicodedata.category(character) in {"Cc", "Cf"}


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
