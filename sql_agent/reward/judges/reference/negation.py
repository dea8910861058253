"""Whether an answer says the opposite of a fact: the opposite word, or a negation too many or too few."""

from __future__ import annotations

from collections.abc import Collection

from sql_agent.reward.judges.reference.passage import JOINS, Passage, is_function_word
from sql_agent.reward.judges.reference.synonyms import CAUTION, DENIED, NO_NEED, NOT, PERMITTED, contradicts

# What a field does: contraindications, precautions, others; and a search whose facts are names.
FORBIDS, ADVISES, TELLS, NAMES = "forbids", "advises", "tells", "names"
_CHINESE_NOT = frozenset("不无未非")
_OR = frozenset(("or", "或"))
_NEAR = 4  # tokens between a fact's words and the opposite word that belongs to them


def is_opposite(fact: Collection[str], answer: Passage, positions: frozenset[int], taken: Collection[int]) -> bool:
    """Whether a word that contradicts one of `fact` stands beside its other words, at `positions`.

    What the fact and its match share contradicts nothing, nor do the words of other facts (`taken`).
    """
    first, last = min(positions), max(positions)
    near = {token for at, token in _beside(answer, positions, taken) if first - _NEAR <= at <= last + _NEAR}
    return any(contradicts(token) & near and token not in near for token in _missing(fact, answer, positions))


def is_exchanged(fact: Collection[str], answer: Passage, scope: Collection[int]) -> bool:
    """Whether the answer has the opposite ("daily") in place of a fact of one word ("weekly")."""
    there = {answer.tokens[position] for position in scope}
    return len(fact) == 1 and any(contradicts(token) & there and token not in there for token in fact)


def is_denied(
    fact: Collection[str], answer: Passage, positions: frozenset[int], taken: Collection[int], advice: str
) -> bool:
    """Whether the clauses of the answer that hold the words of `fact`, at `positions`, negate it.

    `advice` says how the field reads: where it FORBIDS or ADVISES, "not" beside a fact is its own sense ("not in
    pregnancy") and permission turns it round; where it TELLS something, or NAMES, "not"
    denies the fact.
    """
    beside = _beside(answer, positions, taken)
    clause = {token for _, token in beside}
    negations = {token for at, token in beside if token in {NOT, DENIED} and _applies(answer, at, positions)}
    negated = bool(negations)
    missing = _missing(fact, answer, positions)
    if DENIED in negations:
        return True
    if NOT in missing:
        told = advice in {TELLS, NAMES} or (advice == ADVISES and missing == {NOT} and CAUTION not in clause)
        return not negated and (told or PERMITTED in clause)
    if advice in {TELLS, NAMES}:
        return negated or NO_NEED in clause or _not_just_before(answer, positions)
    permits = {NO_NEED, PERMITTED} if advice == FORBIDS or missing else {NO_NEED}
    return bool(permits & clause) and not negated


def _not_just_before(answer: Passage, positions: frozenset[int]) -> bool:
    """Whether a single Chinese negation stands directly before the words: "不发热"."""
    before = min(positions) - 1
    return before >= 0 and answer.tokens[before] in _CHINESE_NOT and answer.items[before] == answer.items[before + 1]


def _applies(answer: Passage, at: int, positions: frozenset[int]) -> bool:
    """Whether the "not" at a place goes with the words at `positions`.

    In its own item it does; before them with "or" ("not A or B"); after them unless it opens its item ("A and not B").
    """
    items = {answer.items[position] for position in positions}
    if answer.items[at] in items:
        return True
    if at < min(positions):
        joins = [token for token in answer.tokens[at : min(positions) + 1] if token in JOINS]
        return all(join in _OR for join in joins)
    start = at
    while is_function_word(answer.tokens[start - 1]) and answer.tokens[start] not in JOINS:
        start -= 1
    return answer.tokens[start] not in JOINS


def _beside(answer: Passage, positions: frozenset[int], taken: Collection[int]) -> list[tuple[int, str]]:
    """The other tokens, with their places, of the clauses that hold `positions`."""
    clauses = {answer.clauses[position] for position in positions}
    return [
        (position, token)
        for position, (token, clause) in enumerate(zip(answer.tokens, answer.clauses, strict=True))
        if clause in clauses and position not in positions and position not in taken
    ]


def _missing(fact: Collection[str], answer: Passage, positions: frozenset[int]) -> set[str]:
    return set(fact) - {answer.tokens[position] for position in positions}
