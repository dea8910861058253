"""Say a question: a wording with its slots filled, from the half of the wordings that a split may use."""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TypeVar

from sql_agent.tasks.described.words import filled

_LEAST = 5  # a shorter list of wordings is used in all splits
_T = TypeVar("_T")


@dataclass(frozen=True)
class Wording:
    """The ways to ask a question. `phrases` are slots with several ways to say them; their texts may have `slots`."""

    templates: tuple[str, ...]
    slots: Mapping[str, str]
    phrases: Mapping[str, tuple[str, ...]]

    def say(self, chosen: random.Random, *, held_out: bool, **slots: str) -> str:
        """Return one of the texts. `held_out` is whether the split is test; `slots` replace those of the wording."""
        template = chosen.choice(half(self.templates, held_out=held_out))
        phrases = {slot: chosen.choice(half(ways, held_out=held_out)) for slot, ways in self.phrases.items()}
        text = filled(filled(template, **phrases), **{**self.slots, **slots})
        begins_with_a_word = template.startswith("{") and not template.startswith("{name}")
        return text[:1].upper() + text[1:] if begins_with_a_word else text


def half(wordings: Sequence[_T], *, held_out: bool) -> Sequence[_T]:
    """Return the last fifth of the wordings for test, the others for train and val; all of a short list for each."""
    if len(wordings) < _LEAST:
        return wordings
    place = len(wordings) - len(wordings) // _LEAST
    return wordings[place:] if held_out else wordings[:place]
