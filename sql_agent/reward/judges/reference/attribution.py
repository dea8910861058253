"""Which part of an answer speaks of whom, when the question compares two or more."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

from sql_agent.reward.judges.reference.facts import Fact
from sql_agent.reward.judges.reference.passage import Passage, is_function_word
from sql_agent.reward.judges.text import find

_BOTH = (("both",), ("each",), ("均",), ("都",), ("两", "者"), ("二", "者"), ("两", "种"))
_FIRST = (("former",), ("前", "者"))
_LAST = (("latter",), ("后", "者"))
_CHINESE_JOINS = frozenset("和与及跟或同")


@dataclass(frozen=True)
class _Mention:
    start: int
    end: int
    owners: frozenset[tuple[str, ...]]


def scopes(answer: Passage, facts: Sequence[Fact], asked: Sequence[str]) -> dict[tuple[str, ...], list[int]]:
    """The positions that speak of each owner of the facts; those of facts without an owner are all positions.

    A clause speaks of whom it names, and else of whom the clause before it does. "Both" names all owners, "former" and
    "latter" the first and the last in the question.
    """
    owners = list(dict.fromkeys(fact.owner for fact in facts if fact.owner))
    everywhere = list(range(len(answer.tokens)))
    if not owners:
        return {(): everywhere}
    found: dict[tuple[str, ...], list[int]] = {owner: [] for owner in owners}
    found[()] = everywhere
    ordered = sorted(owners, key=lambda owner: find(owner, asked))
    mentions = _mentions(answer, facts, owners, ordered)
    current: frozenset[tuple[str, ...]] = frozenset()
    for clause in _clauses(answer):
        here = [mention for mention in mentions if mention.start in clause]
        for number, mention in enumerate(here):
            start = clause.start if number == 0 else mention.start
            end = here[number + 1].start if number + 1 < len(here) else clause.stop
            current = mention.owners
            _speak(found, current, range(start, end))
        if not here:
            _speak(found, current, clause)
    return found


def _speak(found: dict[tuple[str, ...], list[int]], owners: frozenset[tuple[str, ...]], positions: range) -> None:
    for owner in owners:
        found[owner] += positions


def _clauses(answer: Passage) -> list[range]:
    starts = [i for i, clause in enumerate(answer.clauses) if i == 0 or clause != answer.clauses[i - 1]]
    return [range(start, end) for start, end in pairwise([*starts, len(answer.tokens)])]


def _mentions(
    answer: Passage, facts: Sequence[Fact], owners: Sequence[tuple[str, ...]], ordered: Sequence[tuple[str, ...]]
) -> list[_Mention]:
    """The changes of subject in order; names joined by "and" are one, and so are those beside "both"."""
    found = [_Mention(at, at + len(o), frozenset((o,))) for o in owners for at in _subjects(o, answer, facts, owners)]
    for words, whom in ((_BOTH, owners), (_FIRST, ordered[:1]), (_LAST, ordered[-1:])):
        found += [_Mention(at, at + len(word), frozenset(whom)) for word in words for at in _all(word, answer.tokens)]
    joined: list[_Mention] = []
    for mention in sorted(found, key=lambda m: m.start):
        between = answer.tokens[joined[-1].end : mention.start] if joined else ("",)
        if (
            joined
            and all(token in _CHINESE_JOINS or is_function_word(token) for token in between)
            and _joins(answer, joined[-1], mention)
        ):
            joined[-1] = _Mention(joined[-1].start, mention.end, joined[-1].owners | mention.owners)
        else:
            joined.append(mention)
    return joined


def _joins(answer: Passage, left: _Mention, right: _Mention) -> bool:
    return answer.sentences[left.start] == answer.sentences[right.start]


def _subjects(
    owner: tuple[str, ...], answer: Passage, facts: Sequence[Fact], owners: Sequence[tuple[str, ...]]
) -> list[int]:
    """Where `owner` stands as a subject.

    One owner can be part of another's name, or be one of another's values ("insomnia: depression; depression: …"):
    neither of these is a change of subject.
    """
    covered = {
        position + offset
        for longer in owners
        if len(longer) > len(owner) and find(owner, longer) >= 0
        for position in _all(longer, answer.tokens)
        for offset in range(len(longer))
    }
    found = [at for at in _all(owner, answer.tokens) if at not in covered]
    for other in owners:
        as_value = sum(find(owner, fact.value) >= 0 for fact in facts if fact.owner == other and other != owner)
        after = next(iter(_all(other, answer.tokens)), len(answer.tokens))
        values = [at for at in found if at > after][:as_value]
        found = [at for at in found if at not in values]
    return found


def _all(needle: Sequence[str], haystack: Sequence[str]) -> list[int]:
    found, start = [], find(needle, haystack)
    while start >= 0:
        found.append(start)
        start = find(needle, haystack, start + 1)
    return found
