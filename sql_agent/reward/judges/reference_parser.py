"""Parse a reference answer into facts, and check whether the queries of a case searched for them and read them."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache
from typing import NamedTuple

import sqlglot
from sqlglot import exp
from sqlglot.errors import SqlglotError

from sql_agent.errors import JudgeError
from sql_agent.reward import JudgeCase
from sql_agent.reward.judges.items import Reader, is_prose, normalise, sentences, split
from sql_agent.schemas import Question, facts_of

_LEAST_SEARCHED = 2  # minimum length of a searched text; a single character is in nearly every question


@dataclass(frozen=True)
class Fact:
    """A fact of a reference: its items, and its owner, which is the name before a colon, or ""."""

    items: tuple[str, ...]
    owner: str = ""


def reference_facts(question: Question, reader: Reader) -> list[Fact]:
    """Return the facts of a question's reference. Raises JudgeError if there is no fact.

    If the reference is prose, the facts are the sentences that its evidence quotes. If the reference compares
    names ("A: x, y; B: z"), each item is a fact, and its owner is the name; with `question.enough`, all items of a name
    are one fact. A text with several items is no name: "0.5 g, 1 g: 30 months" is one fact of two items.
    """
    if is_prose(question.answer, question.lang):
        quoted = dict.fromkeys(text for evidence in question.evidence for text in sentences(evidence.quote))
        facts = [Fact((text,)) for text in quoted]
        if not facts:
            raise JudgeError(
                f"the reference of question {question.id!r} is prose without evidence, which 'facts' cannot grade",
                hint="use judge.name=llm or reward-model, or replace the prose with `sql-agent data facts FILE`",
            )
        return facts
    texts = facts_of(unicodedata.normalize("NFKC", question.answer))
    owned = [text.partition(":") for text in texts]
    if len({owner for owner, colon, _ in owned if colon and len(split(owner)) == 1}) == len(texts) > 1:
        facts = []
        for owner, _, listed in owned:
            items = tuple(reader.items(listed))
            facts += [Fact(part, normalise(owner)) for part in ([items] if question.enough else [(i,) for i in items])]
    else:
        facts = [Fact(found) for text in texts if (found := tuple(reader.items(text)))]
    if not facts:
        raise JudgeError(
            f"question {question.id!r} has no reference facts: {question.answer!r}",
            hint="write the reference answer as words or numbers, separated by '; '",
        )
    return facts


def has_looked(case: JudgeCase) -> bool:
    """Return whether a query searched for a text as the gold SQL does; without gold SQL, for a text of the question.

    If the gold SQL searches for no text ("which one costs least?"), each successful query counts.
    """
    gold = {normalise(text) for sql in case.question.statements for text in searched_texts(sql)}
    asked = normalise(case.question.question)
    queries = [call.sql for call in case.calls if call.answer.status == "ok"]
    if case.question.statements and not gold:
        return bool(queries)
    texts = {normalise(text) for sql in queries for text in searched_texts(sql)}
    # A part of a gold text counts if it is at least half of that text.
    return any(
        any(g in t or (t in g and 2 * len(t) >= len(g)) for g in gold) if gold else t in asked
        for t in texts
        if len(t) >= _LEAST_SEARCHED
    )


class Cells:
    """The normalised cells that the queries of a case returned from the task's tables."""

    def __init__(self, case: JudgeCase, reader: Reader) -> None:
        self._records: list[list[str]] = []
        for call in case.calls:
            if call.answer.status == "ok" and call.answer.from_tables:
                written = written_values(call.sql)
                shown = ([str(cell) for cell in record if cell is not None] for record in call.answer.records)
                self._records += ([normalise(cell) for cell in record if cell not in written] for record in shown)
        self._cells = {cell for record in self._records for cell in record}
        self._items = {item for cell in self._cells for item in reader.items(cell)}
        self._evidence = case.question.evidence if case.evidence_read is not None else ()
        self._read = case.evidence_read or ()
        self._quotes = [normalise(item.quote) for item in case.question.evidence]
        self._names = [{normalise(name) for name in names} for names in case.row_names]
        self._question = normalise(case.question.question)

    def contain(self, item: str) -> bool:
        """Return whether a cell contains `item`, or two cells of one row contain the parts of an item "Name: text"."""
        return item in self._items or any(item in cell for cell in self._cells) or self._in_one_row(item)

    def show(self, item: str) -> bool:
        """Return whether evidence that quotes `item` was read; without known evidence, `contain(item)`."""
        if not self._evidence:
            return self.contain(item)
        quoting = [e for e, quote in zip(self._evidence, self._quotes, strict=True) if item in quote] or self._evidence
        return any(e in self._read for e in quoting)

    def support(self, conclusion: str) -> bool:
        """Return whether the queries read the evidence for `conclusion`, which is a number, yes or no.

        Without known evidence, a number must be a cell or the number of rows, and yes or no needs at least one row.
        """
        if self._evidence:
            # One cell can decide a yes or no. A count needs all rows.
            return (any if conclusion.isalpha() else all)(e in self._read for e in self._evidence)
        count = len(set(map(tuple, self._records)))
        return conclusion in self._cells | {str(count)} or (conclusion.isalpha() and count > 0)

    def name(self, name: str, text: str) -> bool:
        """Return whether `name` names the row whose evidence quotes `text`.

        If no evidence quotes `text`, any row of the evidence counts, unless `text` is a number. Without evidence,
        `name` must be in the question, and in one row with `text`.
        """
        if not self._quotes:
            return name in self._question and self._in_one_row(f"{name}:{text}")
        named = list(zip(self._quotes, self._names, strict=False))  # there are no names if the answer has no colon
        rows = [names for quote, names in named if text in quote]
        if not rows and not text.isdigit():  # a count belongs to no single row
            rows = self._names
        return any(name in names for names in rows)

    def _in_one_row(self, item: str) -> bool:
        name, _, text = map(str.strip, item.partition(":"))
        beside = ([cell for cell in record if cell != name] for record in self._records if name in record)
        return text != "" and any(text in cell for record in beside for cell in record)

    def owner(self, name: str, owners: set[str]) -> str:
        """Return the name in `owners` that names the same row as `name`; "" if there is none."""
        rows = (names for names in self._names if name in names)
        return name if name in owners else next((owner for names in rows for owner in names & owners), "")


_COMPARISONS = (exp.EQ, exp.NEQ, exp.Is, exp.NullSafeEQ, exp.Like, exp.Glob, exp.In, exp.RegexpLike, exp.StrPosition)
_WILDCARDS = re.compile(r"[%_*]+")


class Search(NamedTuple):
    """A comparison of a column with a text in a statement: `column` in lower case, `text` without wildcards."""

    column: str
    text: str


@lru_cache(maxsize=4096)  # cached, because the rollouts of a group often write the same statement
def searches(sql: str) -> tuple[Search, ...]:
    """Return the texts with which `sql` compares columns, each with every column of the comparison.

    For example, `SELECT 'a' FROM t WHERE name LIKE '%b%'` searches for "b" in `name`. A statement that sqlglot cannot
    parse has no searches.
    """
    found: list[Search] = []
    for literal in _literals(sql):
        comparison = literal.find_ancestor(*_COMPARISONS, exp.Anonymous)
        columns = comparison.find_all(exp.Column) if comparison is not None else ()
        texts = [piece for part in _WILDCARDS.split(literal.name) if (piece := part.strip())]
        found += [Search(column.name.lower(), text) for column in columns for text in texts]
    return tuple(dict.fromkeys(found))


def searched_texts(sql: str) -> tuple[str, ...]:
    return tuple(dict.fromkeys(search.text for search in searches(sql)))


@lru_cache(maxsize=4096)
def written_values(sql: str) -> frozenset[str]:
    """Return the literals that `sql` writes into its own result, such as "a" in `SELECT 'a' FROM t`.

    Literals in aggregates, comparisons and LIMIT are not included.
    """
    return frozenset(
        literal.name
        for literal in _literals(sql)
        if literal.find_ancestor(*_COMPARISONS, exp.AggFunc, exp.Limit, exp.Offset, exp.Exists) is None
    )


@lru_cache(maxsize=4096)
def written_texts(sql: str) -> tuple[str, ...]:
    """Return the literals of `sql` outside of comparisons; a literal inside an aggregate counts too."""
    return tuple(literal.name for literal in _literals(sql) if literal.find_ancestor(*_COMPARISONS) is None)


def _literals(sql: str) -> Iterator[exp.Literal]:
    # Both engines read backticks and double-quoted names; sqlglot's SQLite dialect reads the statements of both.
    try:
        tree = sqlglot.parse_one(sql, dialect="sqlite")
    except (SqlglotError, RecursionError):
        return
    yield from tree.find_all(exp.Literal)
