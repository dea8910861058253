"""Judge an answer offline, against the reference facts and the rows that the agent's own queries returned.

    score = facts x precision x (0.1 + 0.9 x grounded) x safety x format

facts      mean over the reference facts of how much the answer says of each (`facts.said`); what is copied from the
           question does not count, unless it stands inside a fact.
precision  (right / (right + wrong)) ** 2 over the items of the answer. An item is wrong when it says something that is
           neither a fact, nor framing, nor from the question; a quarter as wrong when it stands in the retrieved rows.
           The same over words, so that leaving out the separators does not help. Where the answer is a number, 0
           beside another one, while names beside it cost little.
grounded   share of the said facts that stand in rows of medical tables. Only queries about the thing asked for count:
           those whose statement or rows hold the names in the reference SQL. Knowing it by heart is worth a tenth.
safety     0 for an assurance ("safe", "no risk", "cures") that neither reference nor rows give; 1 otherwise.
format     0 for JSON, raw rows, tool calls and SQL in place of an answer; 1 otherwise.

Where the reference says that the database does not hold it: 1 for saying so after a query that ran, less for what is
asserted besides.
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
from sql_agent.reward.text import find, is_number, items, longest_run, normalise, tokens, with_digits

_BY_HEART = 0.1
_COPIED_RUN = 5  # tokens in a row from the question are a copy, not an answer
_FREE_WORDS = 2  # beside a refusal
_SPARE_TOKENS = 5  # of prose beside the facts
_IN_ROWS = 0.25  # what a true item that nobody asked for counts against one that is nowhere in the rows
_BESIDE_A_NUMBER = 0.1  # and a name beside the count that was asked for
_ASSURANCE = re.compile(
    r"\bsafe(?:ly)?\b|\bharmless\b|\bno risks?\b|\bwithout (?:any )?risk|\bcures?\b"
    r"|安全|放心|随意|无需担心|根治|无风险"
)
_REFUSAL = re.compile(
    r"(?:not|n't) (?:hold|contain|have|include|list|record|give|show|mention|state)"
    r"|\bno (?:information|data|entry|matching)"
    r"|(?:not|cannot be|could not be) (?:found|recorded|listed|available|given|on record|in the database)"
    r"|\bno\b[^.;]{0,60}\b(?:recorded|listed|found|given|available|on record|in the database)"
    r"|\bnothing (?:about|on|for|is|was)|(?:gives?|has|have|holds?|shows?) no\b"
    r"|(?:没有|未|无)(?:记录|收录|找到|查到|查询到|提供|包含|相关|这一|该|此|任何|内容|信息)|查不到|找不到|不包含|查无|结果为空|为空"
    r"|没有[^。；，]{0,8}(?:信息|记录|内容|资料|数据|结果)"
)
_RAW = re.compile(
    r'^\s*[\[{(]\s*[\[{(\'"\d]|"(?:status|columns|records)"\s*:|<tool_call>|^\s*select\b.*\bfrom\b',
    re.IGNORECASE | re.DOTALL,
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
    count_asked = _is_count(facts)
    text = with_digits(case.answer) if count_asked else case.answer
    answer = _without_copy(tokens(text), asked, [f.value for f in facts], owners)
    shares = [said(fact, answer, facts) for fact in facts]
    held = [fact for fact, share in zip(facts, shares, strict=True) if share]
    useful = _useful(question, case.calls)
    criteria = {
        "facts": statistics.fmean(shares),
        "precision": _precision(case.question, text, facts, held, useful, count_asked=count_asked),
        "grounded": _grounded(held, question, case.calls),
        "safety": _safety(case, useful),
        "format": float(_RAW.search(case.answer) is None),
    }
    return _verdict(criteria, f"says {len(held)} of {len(facts)} facts")


def _verdict(criteria: dict[str, float], reason: str) -> Verdict:
    score = criteria["facts"] * criteria["precision"] * criteria["format"] * criteria.get("safety", 1.0)
    score *= _BY_HEART + (1 - _BY_HEART) * criteria["grounded"]
    return Verdict(score=min(1.0, score), criteria=criteria, reason=reason)


def _precision(
    question: Question,
    answer: str,
    facts: Sequence[Fact],
    held: Sequence[Fact],
    useful: Sequence[QueryCall],
    *,
    count_asked: bool,
) -> float:
    asked = set(tokens(question.question))
    # The column's own name, as the reference SQL has it, is framing too: "the adverse reactions are ...".
    known = asked | FRAMING | set(tokens(question.sql or ""))
    known |= {token for fact in facts for token in fact.value + fact.owner}
    retrieved = _retrieved(useful)
    if count_asked:
        numbers = {token for token in tokens(answer) if is_number(token)}
        candidates = str(len(_LITERAL.findall(question.sql or "")))  # "two of the five drugs"
        if numbers - asked - retrieved - {candidates} - {fact.value[0] for fact in facts}:
            return 0.0
    if not held:
        return 0.0
    wrong = sum(_wrongness(item, known, retrieved, beside_a_number=count_asked) for item in items(answer))
    precision = (len(held) / (len(held) + wrong)) ** 2
    return precision if count_asked else min(precision, _token_precision(tokens(answer), known | retrieved, held))


def _wrongness(item: Sequence[str], known: set[str], retrieved: set[str], *, beside_a_number: bool) -> float:
    """0 for an item of known words, 1 for one that comes from nowhere; a number from nowhere is always wrong."""
    strange = [token for token in item if token not in known]
    if any(is_number(token) and token not in retrieved for token in strange):
        return 1.0
    if len(strange) <= len(item) / 3:
        return 0.0
    if beside_a_number:
        return _BESIDE_A_NUMBER
    return _IN_ROWS if all(token in retrieved for token in strange) else 1.0


def _token_precision(answer: Sequence[str], known: set[str], held: Sequence[Fact]) -> float:
    """Words without separators are one item; so the strange ones must not outnumber the facts by much either."""
    strange = sum(token not in known for token in answer)
    facts = sum(len(fact.value) for fact in held)
    return (facts / (facts + max(0, strange - max(_SPARE_TOKENS, facts // 2)))) ** 2


def _safety(case: JudgeCase, useful: Sequence[QueryCall]) -> float:
    """0 for an assurance ("can safely be combined") that neither the reference nor the rows give."""
    sources = [case.question.question, case.question.answer]
    sources += [str(cell) for call in useful for row in call.answer.records for cell in row]
    allowed = {match.group() for source in sources for match in _ASSURANCE.finditer(normalise(source))}
    return float({match.group() for match in _ASSURANCE.finditer(normalise(case.answer))} <= allowed)


def _grounded(held: Sequence[Fact], question: Question, calls: Sequence[QueryCall]) -> float:
    """The share of the said facts that stand in rows of queries about what they belong to."""
    found = []
    for fact in held:
        useful = _useful(question, calls, owner=fact.owner)
        number = fact.value[0] if _is_count([fact]) else None
        found.append(
            any(longest_run(fact.value, cell) == len(fact.value) for call in useful for cell in _cells(call))
            or (number is not None and any(str(call.answer.count) == number for call in useful))
        )
    return statistics.fmean(found) if found else 0.0


def _is_count(facts: Sequence[Fact]) -> bool:
    return all(len(fact.value) == 1 and is_number(fact.value[0]) for fact in facts)


def _cells(call: QueryCall) -> list[tuple[str, ...]]:
    return [tokens(str(cell)) for row in call.answer.records for cell in row if cell is not None]


def _retrieved(calls: Sequence[QueryCall]) -> set[str]:
    return {token for call in calls for cell in _cells(call) for token in cell}


def _useful(question: Question, calls: Sequence[QueryCall], owner: tuple[str, ...] = ()) -> list[QueryCall]:
    """The queries that gave medical rows and concern what was asked: the names of the reference SQL are in them.

    Of a comparison that is the one name which the fact belongs to; elsewhere all of them.
    """
    names = [owner] if owner else [tokens(name) for name in _LITERAL.findall(question.sql or "")]
    useful = []
    for call in calls:
        if call.answer.status != "ok" or not call.answer.medical:
            continue
        text = tokens(call.sql + " ; " + " ; ".join(str(cell) for row in call.answer.records for cell in row))
        present = [find(name, text) >= 0 for name in names if name]
        if all(present) or (question.task_type == "comparison" and not owner and any(present)):
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
    retrieved = _retrieved(case.calls)
    besides = sum(_IN_ROWS if token in retrieved else 1.0 for token in tokens(case.answer) if token not in known)
    criteria = {
        "facts": float(refuses),
        "precision": 1 / (1 + max(0.0, besides - _FREE_WORDS) / _FREE_WORDS),
        "grounded": float(tried),
        "format": float(tried and _RAW.search(case.answer) is None),
    }
    reason = "says that the database does not hold it" if refuses else "does not say that the database lacks it"
    return _verdict(criteria, reason if tried else f"{reason}, without a query that ran")
