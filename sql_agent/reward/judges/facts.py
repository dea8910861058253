"""Grade an answer by what can be verified: the facts and nothing else, a number, yes or no, or the refusal sentence.

    score = share of the facts that the answer gives, an unread fact counting 0.1
            x 0.1 for every other item that is in a row; 0 when one is in no row

A fact is given when whole items of the answer equal it (`items.py` defines equal); docs/judge.md lists all rules.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence

from sql_agent.errors import JudgeError
from sql_agent.reward.judges.base import JudgeCase, Verdict
from sql_agent.reward.judges.items import Reader, Words, is_prose, normalise, split
from sql_agent.schemas import Lang, Question, facts_of

_VERSION = 5  # raise it with every change of a verdict
_UNREAD = 0.1
_OTHER = 0.1

Fact = tuple[str, tuple[str, ...]]  # the name of the fact's owner ("" without one), and its items


class FactsJudge:
    """The judge "facts": no network, no model, the same verdict for the same case every time.

    `words` are the task's refusal sentences, counters and synonyms by language.
    """

    name = "facts"

    def __init__(self, words: Mapping[Lang, Words]) -> None:
        self._readers = {lang: Reader(of_lang) for lang, of_lang in words.items()}
        text = "".join(f"{lang}{words[lang].model_dump_json()}" for lang in sorted(words))
        self._digest = hashlib.sha256(text.encode()).hexdigest()[:12]

    @property
    def identity(self) -> str:
        return f"facts/{_VERSION}:{self._digest}"

    async def grade(self, case: JudgeCase) -> Verdict:
        """Grade `case`. Raises JudgeError when its reference is prose without evidence, or has no fact."""
        reader, question = self._readers[case.question.lang], case.question
        cells, refused = _Cells(case, reader), reader.is_refusal(case.answer)
        if reader.is_refusal(question.answer):
            score = float(refused and bool(cells.answers))
            reason = "" if score else "only the refusal sentence, alone and after a query, is right here"
            return Verdict(score=score, criteria={"facts": score}, reason=reason)
        if refused:
            return Verdict(score=0.0, criteria={"facts": 0.0}, reason="refused although the database holds the answer")
        return (_grade_spans if is_prose(question.answer, question.lang) else _grade_facts)(case, reader, cells)


def reference_facts(question: Question, reader: Reader) -> list[Fact]:
    """Return the facts of a question's reference. Raises JudgeError when there is none.

    Where every fact has the form "Name: items" and all names differ, each item is a fact of the name, its owner. A text
    that splits into items is no name: "0.5 g, 1 g: 30 months" is one fact of two items.
    """
    texts = [normalise(text) for text in facts_of(question.answer)]
    owned = [text.partition(":") for text in texts]
    if len({owner for owner, colon, _ in owned if colon and len(split(owner)) == 1}) == len(texts) > 1:
        facts: list[Fact] = [(owner.strip(), (item,)) for owner, _, items in owned for item in reader.items(items)]
    else:
        facts = [("", tuple(items)) for text in texts if (items := reader.items(text))]
    if not facts:
        raise JudgeError(
            f"question {question.id!r} has no reference facts: {question.answer!r}",
            hint="give it an answer of words or numbers, parted by '; '",
        )
    return facts


class _Cells:
    """All cells that the queries of a case returned from the task's tables, normalised."""

    def __init__(self, case: JudgeCase, reader: Reader) -> None:
        self.answers = [c.answer for c in case.calls if c.answer.status == "ok" and c.answer.from_tables]
        records = (record for answer in self.answers for record in answer.records)
        self._records = [[normalise(str(cell)) for cell in record if cell is not None] for record in records]
        self._cells = {cell for record in self._records for cell in record}
        self._items = {item for cell in self._cells for item in reader.items(cell)}
        self._evidence = case.question.evidence if case.evidence_read is not None else ()
        self._read = case.evidence_read or ()

    def contain(self, item: str) -> bool:
        """Return whether `item`, perhaps without its name, is in a cell, as a whole or inside a longer text."""
        text = self.without_name(item)
        return text in self._items or any(text in cell for cell in self._cells)

    def show(self, item: str) -> bool:
        """Return whether evidence that quotes `item` was read; without recorded evidence, whether a cell has it."""
        if not self._evidence:
            return self.contain(item)
        quoting = [e for e in self._evidence if item in normalise(e.quote)] or self._evidence
        return any(e in self._read for e in quoting)

    def support(self, conclusion: str) -> bool:
        """Return whether all evidence for a number, yes or no was read.

        Without recorded evidence a number must be a cell or the number of rows, and yes or no needs any row.
        """
        if self._evidence:
            return all(e in self._read for e in self._evidence)
        count = len(set(map(tuple, self._records)))
        return conclusion in self._cells | {str(count)} or (conclusion.isalpha() and count > 0)

    def without_name(self, item: str) -> str:
        """Return the text behind the colon of "Name: text" when two cells of one row have the name and the text.

        Any other `item` is returned unchanged.
        """
        name, _, rest = item.partition(":")
        name, text = name.strip(), normalise(rest)
        together = (name in record and any(text in cell for cell in record if cell != name) for record in self._records)
        return text if text and any(together) else item


def _grade_facts(case: JudgeCase, reader: Reader, cells: _Cells) -> Verdict:
    """Look for the facts of the reference; where some of them are `enough`, the read ones count first."""
    question = case.question
    facts = reference_facts(question, reader)
    left = _owned_items(case.answer, facts, reader, cells)
    conclusion = reader.number_or_yes_no(question.answer, question.question)
    if conclusion is not None:
        facts = [("", (conclusion,))]
        left = [("", conclusion if reader.number_or_yes_no(i, question.question) == conclusion else i) for _, i in left]
    found: list[tuple[float, tuple[str, ...]]] = []
    for owner, items in sorted(facts, key=lambda fact: -len(fact[1])):
        wanted = [(owner, item) for item in items]
        starts = (i for i in range(len(left)) if left[i : i + len(wanted)] == wanted)
        if (start := next(starts, None)) is not None:
            del left[start : start + len(wanted)]
            was_read = cells.show(items[0]) if conclusion is None else cells.support(conclusion)
            found.append((1.0 if was_read else _UNREAD, items))
    found.sort(reverse=True)
    enough = question.enough or len(facts)
    beyond = [item for _, items in found[enough:] for item in items]
    worths = [worth for worth, _ in found[:enough]]
    return _verdict(len(worths) / enough, sum(worths) / enough, beyond + [item for _, item in left], cells)


def _owned_items(answer: str, facts: Sequence[Fact], reader: Reader, cells: _Cells) -> list[tuple[str, str]]:
    """Return the items of `answer`, each with its owner: the last owner of `facts` that the answer names before it.

    Where the facts have no owner, the answer may name one ("Name: item"): a name that a row has beside the item is
    dropped.
    """
    owners, wanted = {owner for owner, _ in facts} - {""}, {item for _, items in facts for item in items}
    owned, owner = [], ""
    for line in split(answer):
        name, colon, rest = map(str.strip, line.partition(":"))
        is_label = colon != "" and name in owners
        owner = name if is_label else owner
        nameless = line if owners or line in wanted else cells.without_name(line)
        owned += [(owner, item) for item in reader.items(rest if is_label else nameless)]
    return owned


def _grade_spans(case: JudgeCase, reader: Reader, cells: _Cells) -> Verdict:
    """Look for the answer's items in the evidence; a name before a colon must be in the same row as the item."""
    quotes = dict.fromkeys(item for evidence in case.question.evidence for item in split(evidence.quote))
    if not quotes:
        raise JudgeError(
            f"the reference of question {case.question.id!r} is prose without evidence, which 'facts' cannot grade",
            hint="use judge.name=llm or reward-model, or make facts of it with `sql-agent data facts FILE`",
        )
    others = []
    worths: dict[tuple[str, int], float] = {}  # of each character of the quotes that is in the answer
    for part in split(case.answer):
        item = cells.without_name(part)
        starts = ((quote, quote.index(item)) for quote in quotes if item in quote)
        spans = ({(quote, start + i) for i in range(len(item))} for quote, start in starts)
        span = next((span for span in spans if not span <= worths.keys()), None)
        if span is None:
            others.append(part)
        else:
            worths |= dict.fromkeys(span, 1.0 if cells.show(item) else _UNREAD)
    total = sum(map(len, quotes))
    return _verdict(len(worths) / total, sum(worths.values()) / total, others, cells)


def _verdict(given: float, score: float, others: Sequence[str], cells: _Cells) -> Verdict:
    """Return the verdict: `given` is the share of the reference in the answer, `score` its worth, `others` the rest."""
    unread = [item for item in others if not cells.contain(item)]
    kept = 0.0 if unread else _OTHER ** len(others)
    reasons = [f"gives {given:.0%} of the reference"]
    if score < given:
        reasons.append("not all of it was read from the rows")
    if others:
        shown = ", ".join(repr(item[:40]) for item in (unread or others)[:3])
        reasons.append(f"{len(others)} other items, {len(unread)} of them in no row: {shown}")
    criteria = {"facts": given, "grounded": score / given if given else 0.0, "precision": kept}
    return Verdict(score=score * kept, criteria=criteria, reason="; ".join(reasons))
