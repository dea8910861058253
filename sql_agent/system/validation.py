"""Say what pydantic found wrong with a file, a line or a request."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from pydantic import ValidationError

if TYPE_CHECKING:
    from pydantic_core import ErrorDetails


def first_problem(error: ValidationError, names: Mapping[str, str] | None = None) -> str:
    """Return the first problem of `error` as "place: reason"; without a place where the whole is wrong.

    The place is dotted, as in `levels.0.name`. `names` are other names for its first part, such as those of columns.
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
