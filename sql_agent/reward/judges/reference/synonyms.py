"""Different words for one thing, and words that say the opposite: prompts/wordings.txt.

A line holds the expressions of one meaning, parted by commas; a bar parts it from meanings that contradict it.
"""

from __future__ import annotations

from collections.abc import Sequence
from importlib.resources import files

from sql_agent.reward.judges.text import tokens

NOT, DENIED, NO_NEED, PERMITTED, CAUTION = (
    "not",
    "is not a",
    "no need",
    "may be used",
    "caution",
)  # the first expressions of their lines


def _read() -> tuple[dict[str, list[tuple[tuple[str, ...], str]]], dict[str, frozenset[str]]]:
    """The expressions by their first token, longest first, each with its meaning; and what contradicts a meaning."""
    expressions: dict[str, list[tuple[tuple[str, ...], str]]] = {}
    contradicted: dict[str, frozenset[str]] = {}
    for line in (
        files("sql_agent.reward.judges.reference").joinpath("wordings.txt").read_text(encoding="utf-8").splitlines()
    ):
        sides = [[wording.strip() for wording in side.split(",")] for side in line.split("|")]
        meanings = [side[0] for side in sides]
        for meaning, side in zip(meanings, sides, strict=True):
            contradicted[meaning] = frozenset(meanings) - {meaning}
            for wording in side:
                words = tokens(wording)
                expressions.setdefault(words[0], []).append((words, meaning))
    for same_start in expressions.values():
        same_start.sort(key=lambda expression: -len(expression[0]))
    return expressions, contradicted


_EXPRESSIONS, _CONTRADICTED = _read()


def meanings(words: Sequence[str]) -> tuple[str, ...]:
    """The tokens with each known expression, the longest first, replaced by its meaning."""
    found: list[str] = []
    position = 0
    while position < len(words):
        for expression, meaning in _EXPRESSIONS.get(words[position], ()):
            if tuple(words[position : position + len(expression)]) == expression:
                found.append(meaning)
                position += len(expression)
                break
        else:
            found.append(words[position])
            position += 1
    return tuple(found)


def contradicts(token: str) -> frozenset[str]:
    """The meanings that say the opposite of `token`; none for most words."""
    return _CONTRADICTED.get(token, frozenset())
