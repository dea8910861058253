"""What a reference answer holds: its facts, each perhaps under a name, and how much of one an answer says."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from sql_agent.reward.text import find, is_number, longest_run, tokens

_PARTS = re.compile(r"[;；\n]")
_OWNER = re.compile(r"^([^:：]{1,60})[:：]\s*(.+)$", re.DOTALL)
_NEGATIONS = frozenset(("not", "no", "never", "without", "avoid", "不", "无", "勿", "禁", "忌", "未", "避"))
_NEARLY = 0.6  # a smaller share of a fact is a coincidence of words


@dataclass(frozen=True)
class Fact:
    """One fact as tokens; `owner` is the name it belongs to in a comparison ("Name: value"), else empty."""

    value: tuple[str, ...]
    owner: tuple[str, ...] = ()


def split_facts(answer: str, *, owned: bool) -> list[Fact]:
    """The facts of a reference answer; with `owned`, each "Name: value" is a value under its name.

    Several values under one name ("Name: a, b") are facts of their own.
    """
    facts = []
    for part in _PARTS.split(answer):
        match = _OWNER.match(part.strip()) if owned else None
        owner = tokens(match.group(1)) if match else ()
        values = re.split(r"[,，、]\s*", match.group(2)) if match else [part]
        facts += [Fact(value, owner) for text in values if (value := tokens(text))]
    return facts


def said(fact: Fact, answer: Sequence[str], facts: Sequence[Fact]) -> float:
    """How much of `fact`, one of `facts`, the tokens of an answer say, 0.0–1.0.

    The share of its tokens that the answer has in runs of two or more (any order, so that "damages the joints" says
    "joint damage"), when that is at least 0.6 and neither a number nor a negation of it is missing; else 0. A fact
    with an owner is looked for between that owner's name and the next other one.
    """
    scope = _under(fact.owner, answer, facts) if fact.owner else answer
    if longest_run(fact.value, scope) == len(fact.value):
        return 1.0
    share = _covered(fact.value, scope) / len(fact.value)
    essential = {token for token in fact.value if is_number(token) or token in _NEGATIONS}
    return share if share >= _NEARLY and essential <= set(scope) else 0.0


def _covered(value: tuple[str, ...], scope: Sequence[str]) -> int:
    """How many tokens of `value` stand in `scope` in runs of at least two, the longest run first."""
    for width in range(min(len(value), len(scope)), 1, -1):
        for start in range(len(value) - width + 1):
            if find(value[start : start + width], scope) >= 0:
                return width + _covered(value[:start], scope) + _covered(value[start + width :], scope)
    return 0


def _under(owner: tuple[str, ...], answer: Sequence[str], facts: Sequence[Fact]) -> Sequence[str]:
    """The part of the answer that speaks of `owner`.

    One owner can be part of another's name, or be one of the other's values ("insomnia: depression; depression: …"):
    neither of these is a change of subject.
    """
    owners = {f.owner for f in facts}
    starts = _occurrences(owner, answer, owners)
    if not starts:
        return ()
    after = starts[0] + len(owner)
    ends = []
    for other in owners - {owner}:
        as_value = sum(find(other, f.value) >= 0 for f in facts if f.owner == owner)
        ends += [at for at in _occurrences(other, answer, owners) if at >= after][as_value : as_value + 1]
    return answer[after : min(ends, default=len(answer))]


def _occurrences(owner: tuple[str, ...], answer: Sequence[str], owners: Iterable[tuple[str, ...]]) -> list[int]:
    """Where `owner` stands in the answer and not as a part of a longer owner's name."""
    covered = {
        position + offset
        for longer in owners
        if len(longer) > len(owner)
        for position in _all(longer, answer)
        for offset in range(len(longer))
    }
    return [at for at in _all(owner, answer) if at not in covered]


def _all(needle: tuple[str, ...], haystack: Sequence[str]) -> list[int]:
    found, start = [], find(needle, haystack)
    while start >= 0:
        found.append(start)
        start = find(needle, haystack, start + 1)
    return found
