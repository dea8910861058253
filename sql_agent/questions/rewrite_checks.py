"""Check, without a model, that a reworded question keeps its meaning and does not reveal the answer."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Literal, NamedTuple

from sqlglot import exp

from sql_agent.database.guard import parse
from sql_agent.database.sqlite.dialect import SQLITE
from sql_agent.questions.question_columns import language
from sql_agent.reward.judges.items import Reader, normalise, split
from sql_agent.reward.judges.reference_parser import reference_facts
from sql_agent.schemas import Lang, Question

Half = Literal["train", "test"]  # wordings for the splits train and val, or for the split test
Reason = Literal[
    "unchanged",
    "language",
    "length",
    "name",
    "other name",
    "answer shown",
    "twice",
    "shared wording",
    "answered otherwise",
]

NamesIn = Callable[[str], Iterable[str]]  # returns the names of database rows in a text
# Maximum number of characters that a new text may add to a question.
_MAX_ADDED_CHARS: dict[Lang, int] = {"en": 240, "zh": 100}
_WILDCARDS = re.compile(r"[%\n]+")
_NUMBER = re.compile(r"\d+(?:[.,]\d+)*")


class Problem(NamedTuple):
    """Why a reworded question cannot be used: a reason for statistics, and the details."""

    reason: Reason
    detail: str


class UsedTexts:
    """The texts of all questions, and the wordings of each `Half`. A wording is a text without its `kept_texts`."""

    def __init__(self, texts: Iterable[str]) -> None:
        self._texts = set(map(normalise, texts))
        self._wordings: dict[Half, set[str]] = {"train": set(), "test": set()}

    def problem(self, text: str, kept: Sequence[str], half: Half) -> Problem | None:
        """Return a problem if another question has this text, or a question of the other half has this wording."""
        if normalise(text) in self._texts:
            return Problem("twice", "another question has this text")
        other: Half = "test" if half == "train" else "train"
        if _wording(text, kept) in self._wordings[other]:
            return Problem("shared wording", f"a question of the half {other} has this wording")
        return None

    def add(self, text: str, kept: Sequence[str], half: Half) -> None:
        self._texts.add(normalise(text))
        self._wordings[half].add(_wording(text, kept))


def kept_texts(question: Question) -> tuple[str, ...]:
    """Return the texts that a new wording must contain verbatim.

    These are the string literals of the gold SQL, the quotes of the evidence and the items of these quotes, as far as
    they occur in the question, then the numbers of the question that these texts do not contain. A misspelt name is
    kept, because the first statement of the gold SQL searches for it.
    """
    asked = normalise(question.question)
    texts = [*_sql_texts(question), *(item.quote for item in question.evidence)]
    texts += (item for item in _quoted_items(question) if _occurs_in(item, asked))
    found = {form: text for text in reversed(texts) if (form := normalise(text)) and form in asked}
    numbers = (number for number in _NUMBER.findall(asked) if not any(number in form for form in found))
    return (*reversed(found.values()), *dict.fromkeys(numbers))


def cheap_problem(original: Question, text: str, reader: Reader, names_in: NamesIn) -> Problem | None:
    """Return why `text` cannot replace the text of `original`, or None if it can. No model is asked."""
    return (
        _form_problem(original, text)
        or _name_problem(original, text, names_in)
        or _answer_problem(original, text, reader)
    )


def _form_problem(original: Question, text: str) -> Problem | None:
    if normalise(text) == normalise(original.question):
        return Problem("unchanged", "the text is the same")
    if language(text) != original.lang:
        return Problem("language", f"the text is not in the question's language, {original.lang}")
    if len(text) > len(original.question) + _MAX_ADDED_CHARS[original.lang] or "\n" in text:
        return Problem("length", f"{len(text)} characters, or more than one line")
    return None


def _name_problem(original: Question, text: str, names_in: NamesIn) -> Problem | None:
    asked, new = normalise(original.question), normalise(text)
    lost = [kept for kept in kept_texts(original) if normalise(kept) not in new or _is_new(kept, old=new, new=asked)]
    if lost := lost or sorted({*_NUMBER.findall(asked)} - {*_NUMBER.findall(new)}):
        return Problem("name", f"{lost[0]!r} is missing")
    before = {normalise(name) for name in names_in(original.question)}
    added = sorted(n for n in names_in(text) if normalise(n) not in before and _occurs_in(n, text))
    return Problem("other name", f"{added[0]!r} was not asked about") if added else None


def _answer_problem(original: Question, text: str, reader: Reader) -> Problem | None:
    if shown := [item for item in _answer_items(original, reader) if _is_new(item, original.question, text)]:
        return Problem("answer shown", f"{shown[0]!r} belongs to the answer")
    return None


def _sql_texts(question: Question) -> Iterator[str]:
    """Yield the string literals of the gold SQL without wildcards; all dialects write string literals alike."""
    for statement in question.statements:
        for literal in parse(statement, SQLITE).find_all(exp.Literal):
            if literal.is_string:
                yield from (part.strip() for part in _WILDCARDS.split(literal.name) if part.strip())


def _answer_items(question: Question, reader: Reader) -> Iterator[str]:
    """Yield the normalised items that a text must not reveal; for the answer yes or no, the items of the evidence."""
    if reader.is_refusal(question.answer):
        return
    number = reader.number_or_yes_no(question.answer, question.question)
    if number is None:
        yield from (item for fact in reference_facts(question, reader) for item in fact.items)
    elif number.isalpha():
        yield from _quoted_items(question)
    else:
        yield number


def _quoted_items(question: Question) -> Iterator[str]:
    yield from (part for item in question.evidence for part in split(item.quote))


def _is_new(item: str, old: str, new: str) -> bool:
    return _occurs_in(item, new) and not _occurs_in(item, old)


def _occurs_in(part: str, text: str) -> bool:
    """Return whether `part` is in `text` with no letter a–z or digit before it, and no digit after it."""
    return re.search(rf"(?<![a-z0-9]){re.escape(normalise(part))}(?!\d)", normalise(text)) is not None


def _wording(text: str, kept: Sequence[str]) -> str:
    """Return `text`, normalised, with "…" in place of each kept text."""
    plain = normalise(text)
    for part in sorted(map(normalise, kept), key=len, reverse=True):
        plain = plain.replace(part, "…")
    return plain
