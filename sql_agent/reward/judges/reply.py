"""Read the one JSON object that a judging model was asked for out of what it replied."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from itertools import islice
from typing import Any, TypeVar

from pydantic import BaseModel, ValidationError

Form = TypeVar("Form", bound=BaseModel)

_START = re.compile(r'\{\s*"')
_MOST_STARTS = 1000  # places of a reply that are tried, because each may take a pass over it


def read_reply(text: str, form: type[Form]) -> Form | None:
    """Return the object of `form` in a reply, among thoughts, notes or code fences; None when there is none.

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
    """Yield the complete JSON objects in `text` that stand inside no other one."""
    decoder = json.JSONDecoder(object_pairs_hook=_without_duplicates)
    end = 0
    for match in islice(_START.finditer(text), _MOST_STARTS):
        if match.start() < end:
            continue
        try:
            value, end = decoder.raw_decode(text, match.start())
        except (ValueError, RecursionError):
            continue
        yield value


def _without_duplicates(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    if len({key for key, _ in pairs}) < len(pairs):
        raise ValueError("a key stands twice")
    return dict(pairs)
