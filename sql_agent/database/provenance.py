"""Find out which part of a question's evidence the agent's queries read.

It does not matter how a statement asks: by name or id, through aliases, a WITH query or a subquery. It is run
again over changed tables, and the part of the result from which the answer follows must change with them. It is the
counterfactual form of why-provenance (Buneman, Khanna and Tan 2001, "Why and Where").

    a text     a row of the result shows the quote, and no longer once the cell is empty; the row is the same when the
               table has no other rows, and at most ten rows of the result are not of the evidence
    a number   a cell or the number of rows says it, also over a table of only the evidence's rows, and not without them
    yes or no  the number of rows, or whether a cell of them is true, is another one when the cell has another text, or
               one for which the statement searches
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Protocol

from sql_agent.database.counterfactual import Change
from sql_agent.database.schema import Naming, Schema, quoted
from sql_agent.reward.judges.base import JudgeCase
from sql_agent.reward.judges.items import Reader
from sql_agent.reward.judges.statements import searched_texts, written_values
from sql_agent.schemas import Cell, Evidence, QueryAnswer, QueryCall, Question

_MOST_BESIDE = 10  # rows of a result that are not of the evidence; a query with more of them has looked nothing up
_UNTRUE = {"", "0", "no", "n", "false", "none", "否", "不", "不是", "无", "没有"}

Records = Sequence[tuple[Cell, ...]]


class _Database(Protocol):
    @property
    def schema(self) -> Schema: ...

    def query(self, sql: str, *, changes: Sequence[Change] = ()) -> QueryAnswer: ...


def judge_case(  # noqa: PLR0917  the parts of a graded rollout
    question: Question,
    answer: str,
    calls: Sequence[QueryCall],
    database: _Database,
    names: Mapping[str, Naming],
    reader: Reader,
) -> JudgeCase:
    """Return what a judge needs to grade `answer`: with the evidence that `calls` read, and the names of its rows.

    `names` are those of the task's schema, `reader` is for the question's language.
    """
    conclusion = reader.number_or_yes_no(question.answer, question.question)
    read = evidence_read(database, calls, question.evidence, conclusion) if question.evidence else None
    named = row_names(question.evidence, database, names) if ":" in answer or "：" in answer else ()
    return JudgeCase(question=question, answer=answer, calls=tuple(calls), evidence_read=read, row_names=named)


def evidence_read(
    database: _Database, calls: Iterable[QueryCall], evidence: Sequence[Evidence], conclusion: str | None = None
) -> tuple[Evidence, ...]:
    """Return the part of `evidence` that at least one of `calls` read.

    `conclusion` is the reference where it is a number, in digits, or yes or no; it follows from cells and is in none.
    """
    read: set[Evidence] = set()
    for call in calls:
        left = [item for item in evidence if item not in read]
        if left and call.answer.status == "ok":
            query = _Query(call, evidence, database)
            read |= query.shown(left)
            if conclusion is not None and not read.issuperset(left):
                if conclusion.isalpha():
                    read |= query.decided(left)
                elif query.counts(float(conclusion)):
                    read.update(left)
    return tuple(item for item in evidence if item in read)


def row_names(
    evidence: Iterable[Evidence], database: _Database, names: Mapping[str, Naming]
) -> tuple[tuple[str, ...], ...]:
    """Return all names of the row of each item of `evidence`: its name, its aliases and its everyday names.

    A table without `names` has none.
    """
    return tuple(tuple(_names_of(item, database, names.get(item.table))) for item in evidence)


def _names_of(item: Evidence, database: _Database, naming: Naming | None) -> Iterator[str]:
    if naming is None:
        return
    columns = [column for column in (naming.column, *naming.aliases) if column in database.schema.columns[item.table]]
    key = database.schema.row_key(item.table)
    if key is None:
        return
    answer = database.query(
        f"SELECT {', '.join(map(quoted, columns))} FROM {quoted(item.table)} WHERE {quoted(key)} = {item.row_id}"
    )
    for record in answer.records:
        cells = dict(zip(columns, map(str, record), strict=True))
        yield cells[naming.column]
        yield from naming.called.get(cells[naming.column], ())
        for column, aliases_in in naming.aliases.items():
            yield from aliases_in(cells.get(column, ""))


class _Query:
    """One call, and what its result becomes over changed tables."""

    def __init__(self, call: QueryCall, evidence: Sequence[Evidence], database: _Database) -> None:
        self._sql, self._records, self._database = call.sql, call.answer.records, database
        self._ids: dict[str, tuple[int, ...]] = {}
        for item in evidence:
            self._ids[item.table] = tuple(dict.fromkeys((*self._ids.get(item.table, ()), item.row_id)))

    def shown(self, evidence: Iterable[Evidence]) -> set[Evidence]:
        """Return the items of `evidence` whose quotes the result shows because the query read their cells."""
        by_row: dict[tuple[str, int], list[Evidence]] = {}
        for item in evidence:
            if _showing(self._records, item.quote):
                by_row.setdefault((item.table, item.row_id), []).append(item)
        if not by_row or self._has_many_rows:
            return set()
        alone = self._over(self._rows(others=True)) or ()
        found: set[Evidence] = set()
        for (table, row_id), items in by_row.items():
            columns = dict.fromkeys(item.field for item in items)
            emptied = self._over([Change(table=table, ids=(row_id,), column=column) for column in columns]) or ()
            for item in items:
                showing = _showing(self._records, item.quote)
                # A statement that names the row by its number gets one more column, the last of `SELECT *`.
                same = (record == other[: len(record)] for record in showing for other in alone)
                if len(_showing(emptied, item.quote)) < len(showing) and any(same):
                    found.add(item)
        return found

    def counts(self, number: float) -> bool:
        """Return whether the result says `number` because of just the rows of the evidence."""
        written = written_values(self._sql)
        said = _times_said(self._records, number, written)
        if not said or not _times_said(self._over(self._rows(others=True)) or (), number, written):
            return False
        absent = self._over(self._rows(others=False))
        return absent is not None and _times_said(absent, number, written) < said

    def decided(self, evidence: Iterable[Evidence]) -> set[Evidence]:
        """Return the items of `evidence` on whose cells it depends whether the result is true."""
        if self._has_many_rows:
            return set()
        searched = searched_texts(self._sql)
        found = set()
        for item in evidence:
            texts = ("—" * len(item.quote), *searched, "; ".join(searched))
            cells = (Change(table=item.table, ids=(item.row_id,), column=item.field, text=text) for text in texts)
            changed = (self._over([cell]) for cell in cells)
            if any(records is not None and _truth(records) != _truth(self._records) for records in changed):
                found.add(item)
        return found

    @property
    def _has_many_rows(self) -> bool:
        return len(self._records) > _MOST_BESIDE + sum(map(len, self._ids.values()))

    def _rows(self, *, others: bool) -> list[Change]:
        """Return the changes after which the rows of the evidence are absent, or all `others`."""
        return [Change(table=table, ids=ids, others=others) for table, ids in self._ids.items()]

    def _over(self, changes: Sequence[Change]) -> Records | None:
        """Return the result over changed tables; None where the statement fails over them."""
        answer = self._database.query(self._sql, changes=changes)
        return answer.records if answer.status == "ok" else None


def _showing(records: Records, quote: str) -> list[tuple[Cell, ...]]:
    """Return for each cell that contains `quote`, whatever its case and white space, the cell's record."""
    wanted = _squeezed(quote)
    return [record for record in records for cell in record if wanted in _squeezed(str(cell))]


def _squeezed(text: str) -> str:
    return "".join(text.split()).casefold()


def _times_said(records: Records, number: float, written: frozenset[str]) -> int:
    """Return how often records say `number`: by cells that the statement did not write itself, and by their count."""
    cells = (str(cell) for record in records for cell in record if cell is not None)
    return sum(cell not in written and _number(cell) == number for cell in cells) + (len(set(records)) == number)


def _number(cell: str) -> float | None:
    try:
        return float(cell)
    except ValueError:
        return None


def _truth(records: Records) -> list[list[bool]]:
    """Return of each cell whether it is true, as in a condition; a word for no is not."""
    return [[cell is not None and str(cell).strip().casefold() not in _UNTRUE for cell in record] for record in records]
