"""Words that an answer may use around its facts without saying anything by them: prompts/framing.txt."""

from __future__ import annotations

import re
from collections.abc import Sequence
from importlib.resources import files

from sql_agent.reward.judges.reference.passage import is_function_word, terms
from sql_agent.reward.judges.text import is_chinese


def _read() -> tuple[frozenset[str], re.Pattern[str]]:
    """The single words, and a pattern of the Chinese phrases."""
    words = files("sql_agent.reward.judges.reference").joinpath("framing.txt").read_text(encoding="utf-8").split()
    phrases = sorted((word for word in words if is_chinese(word) and len(word) > 1), key=len, reverse=True)
    single = frozenset(token for word in words if word not in phrases for token in terms(word))
    return single, re.compile("|".join(phrases))


_WORDS, _PHRASES = _read()


def is_framing(item: Sequence[str]) -> list[bool]:
    """Which tokens of an item are framing: by themselves, or as part of a Chinese phrase."""
    characters = "".join(token if is_chinese(token) and len(token) == 1 else " " for token in item)
    inside = {index for phrase in _PHRASES.finditer(characters) for index in range(*phrase.span())}
    return [index in inside or token in _WORDS or is_function_word(token) for index, token in enumerate(item)]
