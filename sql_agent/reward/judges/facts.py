"""Grade an answer by what can be verified: the facts and nothing else, a number, or the refusal sentence.

    score = share of the facts that the answer gives, each worth 0.1 where no row that was read holds it
            x 0.1 for every other item that stands in the rows; 0 when one stands in none

A fact is given when whole items of the answer equal it (`items.py` says what equal means). Facts of the form "Name:
items" count under their own name only. A refusal counts only alone. A reference of prose is replaced by its evidence:
the answer consists of verbatim spans of it, and the share is that of its characters. docs/judge.md has every rule.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from decimal import Decimal
from typing import NamedTuple

from sql_agent.errors import JudgeError
from sql_agent.reward.judges.base import JudgeCase, Verdict
from sql_agent.reward.judges.items import Reader, Words, is_prose, normalise, split
from sql_agent.schemas import Lang, Question

_VERSION = 3  # raise it with every change of a verdict
_UNREAD = 0.1
_OTHER = 0.1

Fact = tuple[str, tuple[str, ...]]  # the owner's name, "" without one, and the items that make up the fact


class _Found(NamedTuple):
    """Which share of the reference an answer gives, the same less what was not read, and what else it says."""

    given: float
    score: float
    others: Sequence[str]


class FactsJudge:
    """The judge "facts": no network, no model, the same verdict for the same case every time.

    `words` are the task's refusal sentences, counters and synonyms by language.
    """

    name = "facts"

    def __init__(self, words: Mapping[Lang, Words]) -> None:
        self._readers = {lang: Reader(lang, of_lang) for lang, of_lang in words.items()}
        text = "".join(f"{lang}{words[lang].model_dump_json()}" for lang in sorted(words))
        self._digest = hashlib.sha256(text.encode()).hexdigest()[:12]

    @property
    def identity(self) -> str:
        return f"facts/{_VERSION}:{self._digest}"

    async def grade(self, case: JudgeCase) -> Verdict:
        """Grade `case`. Raises JudgeError when its reference is prose without evidence, or holds no fact."""
        reader, question = self._readers[case.question.lang], case.question
        if reader.is_refusal(question.answer):
            return _grade_refusal(case, reader)
        if reader.is_refusal(case.answer):
            return Verdict(score=0.0, criteria={"facts": 0.0}, reason="refused although the database holds the answer")
        rows = _Rows(case, reader)
        if is_prose(question.answer, question.lang):
            return _verdict(_found_spans(case, reader, rows), rows)
        facts = reference_facts(question, reader)
        number = reader.number(facts[0][1][0]) if len(facts) == 1 and len(facts[0][1]) == 1 else None
        if number is not None:
            return _verdict(_found_number(number, case, reader, rows), rows)
        return _verdict(_found_facts(facts, question.enough or len(facts), case, reader, rows), rows)


def reference_facts(question: Question, reader: Reader) -> list[Fact]:
    """Return the facts of a question's reference. Raises JudgeError when there is none.

    Where every fact has the form "Name: items" with names of their own, each item is a fact of its owner.
    """
    texts = [text for text in question.answer.replace("；", ";").split(";") if text.strip()]
    if not any(map(split, texts)):
        raise JudgeError(
            f"question {question.id!r} has no reference facts: {question.answer!r}",
            hint="give it an answer of words or numbers, parted by '; '",
        )
    owned = [normalise(text).partition(":") for text in texts]
    if len({owner for owner, colon, _ in owned if colon}) == len(texts) > 1:
        return [(owner.strip(), (item,)) for owner, _, items in owned for item in reader.items(items)]
    return [("", tuple(items)) for text in texts if (items := reader.items(text))]


class _Rows:
    """What the queries of a case returned from the task's tables: every cell, normalised."""

    def __init__(self, case: JudgeCase, reader: Reader) -> None:
        self._answers = [c.answer for c in case.calls if c.answer.status == "ok" and c.answer.from_tables]
        records = (record for answer in self._answers for record in answer.records)
        self._records = [[normalise(str(cell)) for cell in record if cell is not None] for record in records]
        self._cells = {cell for record in self._records for cell in record}
        self._items = {item for cell in self._cells for item in reader.items(cell)}
        self._evidence = case.question.evidence if case.evidence_read is not None else ()
        self._read = case.evidence_read or ()

    def hold(self, items: Sequence[str]) -> bool:
        """Whether the cells hold each of `items`, by itself or inside a longer item."""
        return all(item in self._items or any(item in cell for cell in self._cells) for item in items)

    def were_read(self, items: Sequence[str]) -> bool:
        """Whether a fact was read: its evidence, where the rollout recorded that; else its items stand in the rows."""
        if not self._evidence:
            return self.hold(items)
        supporting = [e for e in self._evidence if items[0] in normalise(e.quote)] or self._evidence
        return any(e in self._read for e in supporting)

    def belong_together(self, name: str, item: str) -> bool:
        """Whether one record has a cell `name` and another cell that holds `item`."""
        return any(name in record and any(item in cell for cell in record) for record in self._records)

    def were_counted(self, number: Decimal) -> bool:
        """Whether a count was read: all its evidence, where that was recorded; else a cell, or as many records."""
        if self._evidence:
            return all(e in self._read for e in self._evidence)
        whole = not any(answer.truncated for answer in self._answers)
        return str(number) in self._cells or (whole and len(set(map(tuple, self._records))) == number)


def _grade_refusal(case: JudgeCase, reader: Reader) -> Verdict:
    refused = reader.is_refusal(case.answer)
    searched = any(call.answer.status == "ok" and call.answer.from_tables for call in case.calls)
    reason = "refused without a query" if refused else "only the refusal sentence, alone, is right here"
    score = float(refused and searched)
    return Verdict(score=score, criteria={"facts": float(refused)}, reason="" if score else reason)


def _found_facts(facts: Sequence[Fact], enough: int, case: JudgeCase, reader: Reader, rows: _Rows) -> _Found:
    owners = {owner for owner, _ in facts}
    left = _owned_items(case.answer, owners, reader)
    given: list[Fact] = []
    for owner, items in sorted(facts, key=lambda fact: -len(fact[1])):
        wanted = [(owner, item) for item in items]
        starts = (i for i in range(len(left)) if left[i : i + len(wanted)] == wanted)
        if (start := next(starts, None)) is not None:
            given.append((owner, items))
            del left[start : start + len(items)]
    given.sort(key=lambda fact: not rows.were_read(fact[1]))
    beyond = [item for _, items in given[enough:] for item in items]
    worth = sum(1.0 if rows.were_read(items) else _UNREAD for _, items in given[:enough])
    return _Found(min(len(given), enough) / enough, worth / enough, beyond + [item for _, item in left])


def _owned_items(answer: str, owners: set[str], reader: Reader) -> list[tuple[str, str]]:
    """Return the items of `answer`, each under the last name of `owners` before it and a colon."""
    if owners == {""}:
        return [("", item) for item in reader.items(answer)]
    owned, owner = [], ""
    for line in split(answer):
        name, colon, rest = line.partition(":")
        if colon and name.strip() in owners:
            owner, line = name.strip(), rest.strip()  # noqa: PLW2901  the label is no item
        if line:
            owned += [(owner, item) for item in reader.items(line)]
    return owned


def _found_number(number: Decimal, case: JudgeCase, reader: Reader, rows: _Rows) -> _Found:
    others = reader.items(case.answer)
    asked = case.question.question
    right = next((i for i in others if reader.number(i) == number and reader.counts_the_asked_kind(i, asked)), None)
    if right is None:
        return _Found(0.0, 0.0, others)
    others.remove(right)
    return _Found(1.0, 1.0 if rows.were_counted(number) else _UNREAD, others)


def _found_spans(case: JudgeCase, reader: Reader, rows: _Rows) -> _Found:
    """Look for the answer's items in the evidence; a name before a colon must stand in the same record as the item."""
    quotes = [item for evidence in case.question.evidence for item in split(evidence.quote)]
    if not quotes:
        raise JudgeError(
            f"the reference of question {case.question.id!r} is prose without evidence, which 'facts' cannot grade",
            hint="use judge.name=llm or reward-model, or make facts of it with `sql-agent data facts FILE`",
        )
    covered = {quote: [False] * len(quote) for quote in quotes}
    read = dict.fromkeys(quotes, 1.0)
    others = []
    for part in split(case.answer):
        name, colon, rest = part.partition(":")
        rest = normalise(rest)
        item = rest if colon and rows.belong_together(name.strip(), rest) else part
        spans = [(quote, slice(quote.index(item), quote.index(item) + len(item))) for quote in quotes if item in quote]
        quote, span = next(((q, s) for q, s in spans if not all(covered[q][s])), ("", slice(0)))
        if not quote:
            others.append(part)
            continue
        covered[quote][span] = [True] * len(item)
        read[quote] = 1.0 if rows.were_read([item]) else _UNREAD
    total = sum(map(len, covered.values()))
    given = sum(sum(marks) for marks in covered.values()) / total
    return _Found(given, sum(read[quote] * sum(marks) for quote, marks in covered.items()) / total, others)


def _verdict(found: _Found, rows: _Rows) -> Verdict:
    unread = [item for item in found.others if not rows.hold([item])]
    kept = 0.0 if unread else _OTHER ** len(found.others)
    grounded = found.score / found.given if found.given else 0.0
    parts = [f"gives {found.given:.0%} of the reference"]
    if found.given and grounded < 1.0:
        parts.append("not all of it was read from the rows")
    if found.others:
        shown = ", ".join(repr(item[:40]) for item in (unread or found.others)[:3])
        parts.append(f"{len(found.others)} other items, {len(unread)} of them in no row: {shown}")
    return Verdict(
        score=found.score * kept,
        criteria={"facts": found.given, "grounded": grounded, "precision": kept},
        reason="; ".join(parts),
    )
