"""Judge an answer offline, against the reference facts and the rows that the agent's own queries returned.

    score = facts x precision x (0.1 + 0.9 x grounded) x format

facts      mean over the reference facts of how much the answer says of each (`facts.said`); what is copied from the
           question does not count.
precision  (right / (right + wrong)) ** 2 over the items of the answer, an item being wrong when it says something that
           is neither a fact, nor framing, nor from the question; where the answer is a number, 0 beside another one.
grounded   share of the said facts that stand in rows of medical tables. Only queries about the thing asked for count:
           those whose statement or rows hold the names in the reference SQL. Knowing it by heart is worth a tenth.
format     0 for JSON, tool calls and SQL in place of an answer; 1 otherwise.

Where the reference says that the database does not hold it: 1 for saying so after a query that ran, divided by one plus
the share of words asserted besides.
"""

from __future__ import annotations

import re
import statistics
from collections.abc import Sequence
from importlib.resources import files

from sql_agent.errors import JudgeError
from sql_agent.records import QueryCall, Question
from sql_agent.reward.facts import Fact, said, split_facts
from sql_agent.reward.judge import JudgeCase, Verdict
from sql_agent.reward.text import find, is_number, items, longest_run, normalise, tokens

_BY_HEART = 0.1
_COPIED_RUN = 5  # tokens in a row from the question are a copy, not an answer
_FREE_WORDS = 3  # beside a refusal
_REFUSAL = re.compile(
    r"(?:not|n't) (?:hold|contain|have|include|list|record)|no (?:information|record|data|entry|result|matching)"
    r"|(?:not|cannot be|could not be) (?:found|recorded|listed|available)"
    r"|(?:没有|未|无)(?:记录|收录|找到|查到|提供|包含|相关|这一|该|此|任何|信息)|查不到|找不到|不包含"
)
_RAW = re.compile(
    r'^\s*[\[{]|"(?:status|columns|records)"\s*:|<tool_call>|^\s*select\b.*\bfrom\b', re.IGNORECASE | re.DOTALL
)
_LITERAL = re.compile(r"'((?:[^']|'')+)'")


def _framing() -> frozenset[str]:
    text = files("sql_agent.reward").joinpath("prompts", "framing.txt").read_text(encoding="utf-8")
    return frozenset(tokens(text))


FRAMING = _framing()


class ReferenceJudge:
    """The judge "reference": no network, no model, the same verdict for the same case every time."""

    name = "reference"

    async def grade(self, case: JudgeCase) -> Verdict:
        """Grade `case`; raises JudgeError when its question has no reference facts."""
        return grade(case)


def grade(case: JudgeCase) -> Verdict:
    """Grade `case` as the module's docstring says; raises JudgeError when its question has no reference facts."""
    question = case.question
    if _is_unanswerable(question):
        return _grade_refusal(case)
    facts = split_facts(question.answer, owned=question.task_type == "comparison")
    if not facts:
        raise JudgeError(
            f"question {question.id!r} has no reference facts: {question.answer!r}",
            hint="give it an answer of words or numbers, parted by '; '",
        )
    asked = tokens(question.question)
    owners = list(dict.fromkeys(f.owner for f in facts if f.owner))
    answer = _without_copy(tokens(case.answer), asked, [f.value for f in facts], owners)
    shares = [said(fact, answer, facts) for fact in facts]
    held = [fact for fact, share in zip(facts, shares, strict=True) if share]
    criteria = {
        "facts": statistics.fmean(shares),
        "precision": _precision(case, facts, held),
        "grounded": _grounded(held, _about(question, case.calls)),
        "format": float(_RAW.search(case.answer) is None),
    }
    return _verdict(criteria, f"says {len(held)} of {len(facts)} facts")


def _verdict(criteria: dict[str, float], reason: str) -> Verdict:
    score = criteria["facts"] * criteria["precision"] * criteria["format"]
    score *= _BY_HEART + (1 - _BY_HEART) * criteria["grounded"]
    return Verdict(score=min(1.0, score), criteria=criteria, reason=reason)


def _precision(case: JudgeCase, facts: Sequence[Fact], held: Sequence[Fact]) -> float:
    asked = set(tokens(case.question.question))
    # The column's own name, as the reference SQL has it, is framing too: "the adverse reactions are ...".
    known = asked | FRAMING | set(tokens(case.question.sql or ""))
    known |= {token for fact in facts for token in fact.value + fact.owner}
    if all(len(fact.value) == 1 and is_number(fact.value[0]) for fact in facts):
        numbers = {token for token in tokens(case.answer) if is_number(token)}
        if numbers - asked - {fact.value[0] for fact in facts}:
            return 0.0
    wrong = sum(len([token for token in item if token not in known]) > len(item) / 3 for item in items(case.answer))
    return (len(held) / (len(held) + wrong)) ** 2 if held else 0.0


def _grounded(held: Sequence[Fact], calls: Sequence[QueryCall]) -> float:
    cells = [tokens(str(cell)) for call in calls for row in call.answer.records for cell in row if cell is not None]
    found = [any(longest_run(fact.value, cell) == len(fact.value) for cell in cells) for fact in held]
    return statistics.fmean(found) if found else 0.0


def _about(question: Question, calls: Sequence[QueryCall]) -> list[QueryCall]:
    """The queries that gave medical rows and concern what was asked: all names of the reference SQL are in them."""
    names = [tokens(name) for name in _LITERAL.findall(question.sql or "")]
    useful = []
    for call in calls:
        if call.answer.status != "ok" or not call.answer.medical:
            continue
        text = tokens(call.sql + " ; " + " ; ".join(str(cell) for row in call.answer.records for cell in row))
        if all(find(name, text) >= 0 for name in names if name):
            useful.append(call)
    return useful


def _without_copy(
    answer: Sequence[str],
    asked: Sequence[str],
    values: Sequence[tuple[str, ...]],
    owners: Sequence[tuple[str, ...]],
) -> tuple[str, ...]:
    """The answer without the runs that it copies from the question.

    A run that stands inside a reference value is that value, not a copy, however much of the question it repeats. Of
    any other run only the names of owners stay: they earn nothing by themselves, and say whose the next values are.
    """
    kept: list[str] = []
    position = 0
    while position < len(answer):
        width = _copied(answer[position:], asked)
        run = answer[position : position + width]
        if width < _COPIED_RUN:
            kept.append(answer[position])
            width = 1
        elif any(find(run, value) >= 0 for value in values):
            kept += run
        else:
            kept += [token for owner in owners if find(owner, run) >= 0 for token in owner]
        position += width
    return tuple(kept)


def _copied(rest: Sequence[str], asked: Sequence[str]) -> int:
    best = 0
    for start in range(len(asked)):
        width = 0
        while width < min(len(rest), len(asked) - start) and rest[width] == asked[start + width]:
            width += 1
        best = max(best, width)
    return best


def _is_unanswerable(question: Question) -> bool:
    """So marked, or (in data that a user brought) so worded."""
    if question.task_type is not None:
        return question.task_type == "unanswerable"
    return _REFUSAL.search(normalise(question.answer)) is not None


def _grade_refusal(case: JudgeCase) -> Verdict:
    refuses = _REFUSAL.search(normalise(case.answer)) is not None
    tried = any(call.answer.status == "ok" for call in case.calls)
    known = FRAMING | set(tokens(case.question.question)) | set(tokens(case.question.answer))
    besides = sum(token not in known for token in tokens(case.answer))
    criteria = {
        "facts": float(refuses),
        "precision": 1 / (1 + max(0, besides - _FREE_WORDS) / _FREE_WORDS),
        "grounded": float(tried),
        "format": float(tried and _RAW.search(case.answer) is None),
    }
    reason = "says that the database does not hold it" if refuses else "does not say that the database lacks it"
    return _verdict(criteria, reason if tried else f"{reason}, without a query that ran")
