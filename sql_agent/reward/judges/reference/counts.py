"""Answers to "how many": the number, the other numbers beside it, and the names of what was counted."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

from sql_agent.reward.judges.reference.passage import read, terms
from sql_agent.reward.judges.reference.synonyms import DENIED, NOT
from sql_agent.reward.judges.text import find, is_number, tokens, with_digits
from sql_agent.schemas import QueryCall, Question

LITERAL = re.compile(r"'((?:[^']|'')+)'")
_NAMED_ONLY = 0.75  # all that were counted are named, but the number is left to the reader
_WRONG_NAMES = 0.5  # the number is right, and what it is said to count is not
_EITHER = re.compile(r"\d\s*(?:[种个项]\w{0,2})?\s*(?:or|to|[-–~]|或者?|至|到)\s*(?:是)?\d")
_OF_ALL = re.compile(r"\bof (?:the |these |those |all )*(\d+)|(\d+)\s*[种个项名][^，。；,]{0,8}?[中里]")


@dataclass(frozen=True)
class Counted:
    """The rows behind a count: `right` are the names in rows that hold the keyword, `others` those in the rest."""

    right: frozenset[tuple[str, ...]]
    others: frozenset[tuple[str, ...]]


def counted(question: Question, calls: Sequence[QueryCall]) -> Counted:
    """The names behind a count, from queries that returned them; both sets are empty where none did."""
    literals = [text.strip("%") for text in LITERAL.findall(question.sql or "")]
    if not literals:
        return Counted(frozenset(), frozenset())
    keyword = terms(literals[-1])
    candidates = {terms(name) for name in literals[:-1]}
    right, all_names = set(), set(candidates)
    for call in calls:
        filtered = find(keyword, terms(call.sql)) >= 0
        for row in call.answer.records:
            row_cells = [terms(str(cell)) for cell in row if cell is not None]
            if not row_cells or (is_number("".join(row_cells[0])[:1] or " ") and len(row_cells[0]) == 1):
                continue
            name = next((cell for cell in row_cells if cell in candidates), row_cells[0])
            all_names.add(name)
            if filtered or any(find(keyword, cell) >= 0 for cell in row_cells if cell != name):
                right.add(name)
    return Counted(frozenset(right), frozenset(all_names - right))


def share(number: str, question: Question, answer: str, names: Counted) -> float:
    """How much of the count `number` the answer says: all, or 0.75 where it only names all that were counted."""
    passage = read(with_digits(answer))
    denied = {clause for token, clause in zip(passage.tokens, passage.clauses, strict=True) if token in {NOT, DENIED}}
    denied = set() if NOT in terms(question.question) else denied
    said = [clause for token, clause in zip(passage.tokens, passage.clauses, strict=True) if token == number]
    if any(clause not in denied for clause in said):
        return 1.0
    listed = len(names.right) == float(number) and all(_named(name, answer) for name in names.right)
    in_names = {token for name in names.right for token in name}
    return _NAMED_ONLY if listed and _numbers(answer) <= in_names else 0.0


def correctness(number: str, question: Question, answer: str, names: Counted, calls: Sequence[QueryCall]) -> float:
    """1 when the count stands alone or with what belongs to it; 0 beside another number; 0.5 with wrong names.

    What belongs to it: numbers of the question, of the rows, and how many names the question gives ("2 of the four").
    """
    plain = with_digits(answer)
    known = {number, *terms(question.question)}
    known |= {match.group(1) or match.group(2) for match in _OF_ALL.finditer(plain)} & {_candidates(question)}
    for call in calls:
        known |= {token for row in call.answer.records for cell in row for token in tokens(str(cell))}
        if call.answer.status == "ok" and call.answer.count > 1:
            known.add(str(call.answer.count))
    if _numbers(answer) - known or _EITHER.search(plain):
        return 0.0
    wrong = any(_named(name, answer) for name in names.others)
    missing = any(not _named(name, answer) for name in names.right)
    return _WRONG_NAMES if wrong and missing and names.right else 1.0


def _candidates(question: Question) -> str:
    return str(len(LITERAL.findall(question.sql or "")) - 1)


def _named(name: tuple[str, ...], answer: str) -> bool:
    return find(name, read(answer).tokens) >= 0


def _numbers(answer: str) -> set[str]:
    return {token for token in tokens(with_digits(answer)) if is_number(token)}
