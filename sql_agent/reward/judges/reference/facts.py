"""What a reference answer holds: its facts, each perhaps under a name, and how much of one an answer says."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from itertools import pairwise

from sql_agent.reward.judges.reference.filler_words import is_framing
from sql_agent.reward.judges.reference.negation import NAMES, is_denied, is_exchanged, is_opposite
from sql_agent.reward.judges.reference.passage import Passage, is_function_word, pairs, terms, weight
from sql_agent.reward.judges.reference.synonyms import NOT
from sql_agent.reward.judges.text import find, is_chinese, is_number

_PARTS = re.compile(r"[;；\n]")
_OWNER = re.compile(r"^([^:：]{1,60})[:：]\s*(.+)$", re.DOTALL)
_CHINESE_NOT = frozenset("不无未勿禁忌避非")
_ALL = 0.8  # of its weight: then the fact is said, in other words
_NEARLY = 0.56  # a smaller share is a coincidence of words
_SHORT_FORM = 0.4  # unless the answer's item holds nothing else: "stroke" for "ischaemic stroke"
_ABBREVIATED = 0.9
_SHORTEST = 2  # characters of a short form
_SPARE = 6  # tokens that may stand between those of a fact, besides as many as it has


@dataclass(frozen=True)
class Fact:
    """One fact as tokens; `owner` is the name it belongs to in a comparison ("Name: value"), else empty."""

    value: tuple[str, ...]
    owner: tuple[str, ...] = ()


@dataclass(frozen=True)
class Said:
    """How much of a fact an answer says (0.0–1.0), where, and whether it says the opposite (then the share is 0)."""

    share: float = 0.0
    positions: frozenset[int] = frozenset()
    reversed: bool = False


def split_facts(answer: str, *, owned: bool) -> list[Fact]:
    """The facts of a reference answer; with `owned`, each "Name: value" is a value under its name.

    Several values under one name ("Name: a, b") are facts of their own.
    """
    facts = []
    for part in _PARTS.split(answer):
        match = _OWNER.match(part.strip()) if owned else None
        owner = terms(match.group(1)) if match else ()
        values = re.split(r"[,，、]\s*", match.group(2)) if match else [part]
        facts += [Fact(value, owner) for text in values if (value := terms(text))]
    return facts


def weights(facts: Sequence[Fact]) -> dict[str, float]:
    """What each token of the facts counts: `passage.weight`, and the less the more facts hold it."""
    holding = Counter(token for fact in facts for token in set(fact.value))
    return {token: 0.0 if token == NOT else weight(token) / count for token, count in holding.items()}


def said(
    fact: Fact, answer: Passage, scope: Sequence[int], values: dict[str, float], *, taken: Collection[int], advice: str
) -> Said:
    """How much of `fact` the answer says at the positions in `scope`.

    The fact itself, as one run, counts 1. Else the heaviest match counts: tokens of the fact in any order, within one
    sentence and not far apart, Chinese characters only in pairs; `values` weighs them (`weights`). All its numbers
    and negations must be there. `taken` are positions of other facts, whose words cannot reverse this one; `advice` as
    in `polarity.is_denied`.
    """
    best = Said(reversed=advice != NAMES and is_exchanged(fact.value, answer, scope))
    for positions, share in _matches(fact, answer, scope, values):
        enough = share >= (_SHORT_FORM if _nothing_else(answer, positions) else _NEARLY)
        if is_opposite(fact.value, answer, positions, taken) or (
            enough and is_denied(fact.value, answer, positions, taken, advice)
        ):
            best = best if best.share else Said(0.0, positions, reversed=True)
        elif enough and share > best.share and _complete(fact.value, answer, positions):
            best = Said(1.0 if share >= _ALL else share, positions)
    return best


def runs(value: Sequence[str], answer: Passage, scope: Sequence[int]) -> list[frozenset[int]]:
    """The positions of every place in `scope` where `value` stands as one run."""
    tokens = [answer.tokens[position] for position in scope]
    found, start = [], find(value, tokens)
    while start >= 0:
        found.append(frozenset(scope[start : start + len(value)]))
        start = find(value, tokens, start + 1)
    return found


def _complete(value: Sequence[str], answer: Passage, positions: frozenset[int]) -> bool:
    """Whether no number and no negation of the fact is missing in the sentence of the match."""
    sentence = answer.sentences[min(positions)]
    there = {token for token, other in zip(answer.tokens, answer.sentences, strict=True) if other == sentence}
    there |= {answer.tokens[position] for position in positions}
    return all(token in there for token in value if is_number(token) or token == NOT or token in _CHINESE_NOT)


def _matches(
    fact: Fact, answer: Passage, scope: Sequence[int], values: dict[str, float]
) -> list[tuple[frozenset[int], float]]:
    """Where the fact may be said and how much of it stands there, 0.0–1.0."""
    found = [(positions, 1.0) for positions in runs(fact.value, answer, scope)]
    if found:
        return found
    total = sum(values[token] for token in fact.value) or 1.0
    words = set(fact.value)
    width = 2 * len(fact.value) + _SPARE
    at = [position for position in scope if answer.tokens[position] in words]
    widest: frozenset[int] = frozenset()
    for index, first in enumerate(at):
        window = [
            position
            for position in at[index : index + width]
            if position < first + width and answer.sentences[position] == answer.sentences[first]
        ]
        covered, positions = _covered(fact.value, answer, window)
        share = sum(values[token] for token, there in zip(fact.value, covered, strict=True) if there) / total
        if share < _SHORT_FORM or not positions or positions <= widest:
            continue
        widest = positions
        if _replaced(fact.value, covered, answer, positions):
            share /= 2
        found.append((positions, share))
    return found + [(positions, _ABBREVIATED) for positions in _abbreviations(fact.value, answer, scope)]


def _abbreviations(value: Sequence[str], answer: Passage, scope: Sequence[int]) -> list[frozenset[int]]:
    """The items that are a short form of the fact: some of its Chinese characters in order, or its English initials."""
    inside, found = set(scope), []
    for positions in answer.item_positions:
        item = [answer.tokens[position] for position in positions]
        content = [p for p, framing in zip(positions, is_framing(item), strict=True) if not framing and p in inside]
        short = [answer.tokens[position] for position in content]
        if short == [initials(value)] or _is_subsequence(short, value):
            found.append(frozenset(content))
    return found


def initials(value: Sequence[str]) -> str | None:
    """The short form that English words make ("copd"); None of a single word or of Chinese."""
    words = [word for token in value if not is_function_word(token) for word in token.split()]
    return "".join(word[0] for word in words) if len(words) >= _SHORTEST and "".join(words).isascii() else None


def _is_subsequence(short: Sequence[str], value: Sequence[str]) -> bool:
    rest = iter(value)
    return (
        _SHORTEST <= len(short) < len(value) <= _SHORTEST * len(short) + 2
        and all(_is_character(token) and token in rest for token in short)
        and find(short, value) not in {0, len(value) - len(short)}
    )


def _covered(value: Sequence[str], answer: Passage, window: Sequence[int]) -> tuple[list[bool], frozenset[int]]:
    """Which tokens of `value` stand in the window, and where; Chinese characters only with a neighbour of theirs."""
    text = [answer.tokens[position] for position in window]
    adjacent = {(text[i], text[i + 1]) for i in range(len(text) - 1) if window[i + 1] == window[i] + 1}
    single = {token for token in text if not _is_character(token)}
    covered = [token in single or (token in _CHINESE_NOT and token in text) for token in value]
    for i, pair in enumerate(pairwise(value)):
        if pair in adjacent:
            covered[i] = covered[i + 1] = True
    there = pairs(value) & adjacent
    positions = {p for p, token in zip(window, text, strict=True) if token in single and not is_function_word(token)}
    for i in range(len(text) - 1):
        if window[i + 1] == window[i] + 1 and (text[i], text[i + 1]) in there:
            positions |= {window[i], window[i + 1]}
    return covered, frozenset(positions)


def _is_character(token: str) -> bool:
    return len(token) == 1 and is_chinese(token)


def _replaced(value: Sequence[str], covered: Sequence[bool], answer: Passage, positions: frozenset[int]) -> bool:
    """Whether another word stands between two neighbours of the missing one: "severe hepatic impairment" for renal.

    A word that is only missing, or only added, leaves the fact what it is; one in another's place does not. Of a
    Chinese fact its first and last character count too.
    """
    missing = [index for index, there in enumerate(covered) if not there and value[index] not in _CHINESE_NOT]
    for index in (index for index in missing if not is_function_word(value[index])):
        before = value[index - 1] if index and covered[index - 1] else None
        after = value[index + 1] if index + 1 < len(value) and covered[index + 1] else None
        edge = _is_character(value[index]) and (index == 0 or index == len(value) - 1)
        if (before is None or after is None) and not edge:
            continue
        for position in positions:
            token = answer.tokens[position]
            if token == before and after is None and _other(answer, position, 1, positions):
                return True
            if token == after and _other(answer, position, -1, positions):
                left = position - 2
                if before is None or (left >= 0 and answer.tokens[left] == before):
                    return True
    return False


def _other(answer: Passage, position: int, step: int, positions: frozenset[int]) -> bool:
    """Whether the next token in the same item is neither framing nor part of the match."""
    beside = position + step
    return (
        0 <= beside < len(answer.tokens)
        and beside not in positions
        and answer.items[beside] == answer.items[position]
        and is_framing([answer.tokens[beside]]) == [False]
    )


def _nothing_else(answer: Passage, positions: frozenset[int]) -> bool:
    """Whether the match stands in one item that holds nothing besides but framing."""
    (item, *others) = {answer.items[position] for position in positions}
    there = [position for position, number in enumerate(answer.items) if number == item]
    framing = is_framing([answer.tokens[position] for position in there])
    return not others and all(known or at in positions for at, known in zip(there, framing, strict=True))
