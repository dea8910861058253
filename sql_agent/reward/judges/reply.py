"""Parse the reply of a judge model: one JSON object, perhaps with other text around it."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from itertools import islice
from typing import Any, TypeVar

from pydantic import BaseModel, ValidationError

Form = TypeVar("Form", bound=BaseModel)

_START = re.compile(r'\{\s*"')
_MOST_STARTS = 1000  # positions at which parsing is tried, because each try may read the whole reply


def parse_reply(text: str, form: type[Form]) -> Form | None:
    """Return the JSON object of `form` in a reply, among thoughts, notes or code fences; None without one.

    Also None if a reply has two different objects of `form`: one of them may be quoted from the graded answer, and
    neither the first nor the last is safe to use.
    """
    found: list[Form] = []
    for value in _objects(text.rpartition("</think>")[2]):
        try:
            found.append(form.model_validate(value))
        except ValidationError:
            continue
    return found[0] if found and all(other == found[0] for other in found) else None


def _objects(text: str) -> Iterator[Any]:
    """Yield the outermost complete JSON objects in `text`."""
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
        raise ValueError("a key occurs twice")
    return dict(pairs)
