"""Grade an answer by rules: facts of the reference earn points, and all other items of the answer cost points.

    score = (facts given and read + 0.05 x facts given but not read) / facts of the reference
            x 0.05 for each other item of the answer; x 0 if one of the other items is in no returned row

The answer gives a fact if it contains the items of the fact, normalised as in `items.py`. A number, yes or no counts
as one fact. A refusal earns 1 or 0. docs/judge.md lists all rules.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Mapping, Sequence

from sql_agent.reward import JudgeCase, Verdict
from sql_agent.reward.judges.acceptance import is_correct
from sql_agent.reward.judges.items import Reader, Words, is_prose, sentences, split
from sql_agent.reward.judges.reference_parser import Cells, Fact, has_looked, reference_facts
from sql_agent.schemas import Lang

_VERSION = 13  # raise it with every change of a verdict
_UNREAD = 0.05  # value of a fact that the answer gives but no query read
_OTHER = 0.05  # factor for each item that is in a row, but is no fact


class FactsJudge:
    """The judge "facts", which needs no network and no model. `words` are the task's words by language."""

    name = "facts"

    def __init__(self, words: Mapping[Lang, Words]) -> None:
        self._readers = {lang: Reader(of_lang) for lang, of_lang in words.items()}
        text = "".join(f"{lang}{words[lang].model_dump_json()}" for lang in sorted(words))
        self._digest = hashlib.sha256(text.encode()).hexdigest()[:12]

    @property
    def identity(self) -> str:
        return f"facts/{_VERSION}:{self._digest}"

    async def grade(self, case: JudgeCase) -> Verdict:
        """Grade `case`. The criterion "correct" is 1.0 if the rules in acceptance.py accept the answer, else 0.0.

        Raises JudgeError if the reference is prose without evidence, or has no fact.
        """
        reader = self._readers[case.question.lang]
        cells = Cells(case, reader)
        verdict = _grade(case, reader, cells)
        correct = float(verdict.score == 1.0 or is_correct(case, reader, cells))
        return verdict.model_copy(update={"criteria": verdict.criteria | {"correct": correct}})


def _grade(case: JudgeCase, reader: Reader, cells: Cells) -> Verdict:
    refused = reader.is_refusal(case.answer)
    if reader.is_refusal(case.question.answer):
        score = float(refused and has_looked(case))
        reason = "" if score else "only the refusal sentence, alone and after a search for what is asked, is right here"
        return Verdict(score=score, criteria={"facts": score}, reason=reason)
    if refused:
        return Verdict(score=0.0, criteria={"facts": 0.0}, reason="refused although the database holds the answer")
    return _grade_facts(case, reader, cells)


def _grade_facts(case: JudgeCase, reader: Reader, cells: Cells) -> Verdict:
    """Grade an answer by the facts of the reference. Of more than `enough` facts, those that were read count first."""
    question = case.question
    facts = reference_facts(question, reader)
    left = _owned_items(case, facts, reader, cells)
    conclusion = reader.number_or_yes_no(question.answer, question.question)
    if conclusion is not None:
        facts = [Fact((conclusion,))]
        left = [("", conclusion if reader.number_or_yes_no(i, question.question) == conclusion else i) for _, i in left]
    found: list[tuple[float, Fact]] = []
    for fact in sorted(facts, key=lambda fact: -len(fact.items)):
        # Items of an owner may be in any order. Items of a fact without an owner ("dry, dark place") keep their order.
        arranged: Callable[[Iterable[tuple[str, str]]], list[tuple[str, str]]] = sorted if fact.owner else list
        wanted = arranged((fact.owner, item) for item in fact.items)
        starts = (i for i in range(len(left)) if arranged(left[i : i + len(wanted)]) == wanted)
        if (start := next(starts, None)) is not None:
            del left[start : start + len(wanted)]
            was_read = all(map(cells.show, fact.items)) if conclusion is None else cells.support(conclusion)
            found.append((1.0 if was_read else _UNREAD, fact))
    found.sort(key=lambda pair: -pair[0])
    enough = question.enough or len(facts)
    beyond = [item for _, fact in found[enough:] for item in fact.items]
    others = beyond + [item for _, item in left]
    given, score = len(found[:enough]) / enough, sum(worth for worth, _ in found[:enough]) / enough
    unread = [item for item in others if not cells.contain(item)]
    kept = 0.0 if unread else _OTHER ** len(others)
    reasons = [f"gives {given:.0%} of the reference"]
    if score < given:
        reasons.append("not all of it was read from the rows")
    if others:
        shown = ", ".join(repr(item[:40]) for item in (unread or others)[:3])
        reasons.append(f"{len(others)} other items, {len(unread)} of them in no row: {shown}")
    precision = kept if given or others else 0.0  # an empty answer contains nothing right
    criteria = {"facts": given, "grounded": score / given if given else 0.0, "precision": precision}
    return Verdict(score=score * kept, criteria=criteria, reason="; ".join(reasons))


def _owned_items(case: JudgeCase, facts: Sequence[Fact], reader: Reader, cells: Cells) -> list[tuple[str, str]]:
    """Return (owner, item) for each item of the answer; its owner is the last owner of `facts` named before it.

    If the facts have no owner, the owner is "", and the name of a row before the items ("Name: item") is removed.
    """
    owners, wanted = {fact.owner for fact in facts} - {""}, {item for fact in facts for item in fact.items}
    prose = is_prose(case.question.answer, case.question.lang)
    owned, owner = [], ""
    for line in (sentences if prose else split)(case.answer):
        name, colon, rest = map(str.strip, line.partition(":"))
        text = line
        if colon and owners and (of_one := cells.owner(name, owners)):
            owner, text = of_one, rest
        elif colon and not owners and line not in wanted and cells.name(name, rest):
            text = rest
        owned += [(owner, item) for item in ([text] if prose else reader.items(text)) if item]
    return owned
