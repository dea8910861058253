"""A text as tokens that know their sentence, their clause and their item of a list."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache
from itertools import pairwise

from sql_agent.reward.judges.reference.synonyms import meanings
from sql_agent.reward.judges.text import is_chinese, normalise, tokens

_SENTENCES = re.compile(r"[;；。！？!?\n]|(?<!\d)\.(?=\s|$)|(?<=\d)\.(?=\s*$|\s+[a-z])")
_CLAUSES = re.compile(
    r"(?<!\d)[,，]|[,，](?!\d)|[、:：()（）\[\]【】“”\"…—]|\b(?:but|while|whereas|although|though|however)\b"
    r"|但是?|然而|而(?![且])|(?<=[㐀-鿿])\s+(?=[㐀-鿿])"
)
JOINS = frozenset(("and", "or", "plus", "和", "及", "或"))  # "以及" and "或者" end or begin with one
_FUNCTION_WORDS = frozenset(
    tokens(
        "a an the of for in on to is are was were be been it its this that these those they them he she with by as and "
        "or at from into when if has have had may can could should must will would do does did so than then any all "
        "his her their your you one i we"
    )
)
_FUNCTION_WEIGHT = 0.1


@dataclass(frozen=True)
class Passage:
    """The tokens of a text; `sentences`, `clauses` and `items` number, for each token, the part that it stands in."""

    tokens: tuple[str, ...]
    sentences: tuple[int, ...]
    clauses: tuple[int, ...]
    items: tuple[int, ...]

    @cached_property
    def item_positions(self) -> list[list[int]]:
        """The positions of each item's tokens."""
        grouped: dict[int, list[int]] = {}
        for position, item in enumerate(self.items):
            grouped.setdefault(item, []).append(position)
        return list(grouped.values())


def read(text: str) -> Passage:
    """`text` as a passage; equal expressions (`wordings.meanings`) are equal tokens."""
    found: list[tuple[str, int, int, int]] = []
    clause = item = 0
    for sentence, sentence_text in enumerate(_SENTENCES.split(normalise(text.replace("|", ", ")))):
        for clause_text in _CLAUSES.split(sentence_text):
            for token in meanings(tokens(clause_text)):
                item += token in JOINS
                found.append((token, sentence, clause, item))
            clause, item = clause + 1, item + 1
    columns = tuple(zip(*found, strict=True)) or ((), (), (), ())
    return Passage(*columns)


@lru_cache(maxsize=1 << 12)
def terms(text: str) -> tuple[str, ...]:
    """The tokens of `text` as a passage has them."""
    return read(text).tokens


def weight(token: str) -> float:
    """How much a token says: an English word or a number 1, a Chinese character a half, a function word a tenth."""
    if token in _FUNCTION_WORDS:
        return _FUNCTION_WEIGHT
    return len(token) / 2 if is_chinese(token) else 1.0


def is_function_word(token: str) -> bool:
    return token in _FUNCTION_WORDS


def pairs(sequence: Sequence[str]) -> set[tuple[str, str]]:
    """The neighbours in `sequence`."""
    return set(pairwise(sequence))
