"""Read the one JSON object that a judging model was asked for out of what it replied."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any, TypeVar

from pydantic import BaseModel, ValidationError

Form = TypeVar("Form", bound=BaseModel)


def read_reply(text: str, form: type[Form]) -> Form | None:
    """The object of `form` in a reply, with thoughts, notes or code fences around it; None when there is none.

    Also None when a reply holds two objects of the form that differ: one of them may be a quotation of the answer that
    is graded, and neither the first nor the last is safe to take.
    """
    found: list[Form] = []
    for value in _objects(text.rpartition("</think>")[2]):
        try:
            found.append(form.model_validate(value))
        except ValidationError:
            continue
    return found[0] if found and all(other == found[0] for other in found) else None


def _objects(text: str) -> Iterator[Any]:
    """Every complete JSON object in `text` that does not stand inside another one."""
    decoder = json.JSONDecoder(object_pairs_hook=_without_duplicates)
    position = text.find("{")
    while position >= 0:
        try:
            value, end = decoder.raw_decode(text, position)
        except (ValueError, RecursionError):
            end = position + 1
        else:
            yield value
        position = text.find("{", end)


def _without_duplicates(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    if len({key for key, _ in pairs}) < len(pairs):
        raise ValueError("a key stands twice")
    return dict(pairs)
