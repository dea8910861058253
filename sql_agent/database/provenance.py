"""Find out which items of a question's evidence the agent's queries read.

A statement may find a row in any way: by name or id, through aliases, a WITH query or a subquery. So the statement is
run again on changed tables: it has read an item if its result changes with the item. This is the counterfactual form of
why-provenance (Buneman, Khanna and Tan 2001, "Why and Where"). A statement has read

    a text     if the result shows a mark that was appended to the text in its cell; or if the text is not written in
               the statement, and the result no longer shows the text when the cell has another text
    a name     as for a text; but also some query must depend on the columns by which the gold SQL finds the row
    a number   if the result contains the number, or has this number of rows; and still does when the table has only the
               evidence's rows; and does so less often without these rows; and changes when these rows have another text
    yes or no  if the statement searches the cell for a text; and the result changes when the cell has another text or
               this text, but stays the same when the cells of all other rows have this text

An identifier, such as an approval number, also counts as read if a query read it in another column of the same row.

If the queries together show more than twenty other values of the evidence's columns, they list a table, and count as
having read no text and no name.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence

from sql_agent.database.counterfactual import Change
from sql_agent.database.database import Database
from sql_agent.database.schema import Naming, fold, quoted
from sql_agent.reward import JudgeCase
from sql_agent.reward.judges.items import Reader
from sql_agent.reward.judges.reference_parser import searched_texts, searches, written_texts, written_values
from sql_agent.schemas import Cell, Evidence, QueryCall, Question

_MOST_OTHERS = 20  # maximum number of values from rows without evidence that all queries together may show
# An identifier means the same in two columns of a row. Equal words or sentences may not.
_IDENTIFIER = re.compile(r"(?=.*[A-Za-z])(?=.*\d{4})[\w()（）-]{6,40}")
_LEAST_SEARCHED = 2  # minimum length, in characters, of a text for which a statement searches a cell
_ANOTHER = "—"  # the text that replaces the text of a cell
_NUMBER = re.compile(r"\d+(?:\.\d+)?")
_SEVERAL = re.compile("[:;：；]")  # punctuation of an answer that may name its row

Records = Sequence[tuple[Cell, ...]]


def judge_case(  # noqa: PLR0917  the parts of a graded rollout
    question: Question,
    answer: str,
    calls: Sequence[QueryCall],
    database: Database,
    names: Mapping[str, Naming],
    reader: Reader,
) -> JudgeCase:
    """Return the input of a judge for `answer`, with the evidence that `calls` read and the evidence's row names.

    `names` is `RequiredSchema.names` of the task. `reader` must be for the question's language. Row names are looked up
    only for an answer with a colon or a semicolon.
    """
    conclusion = reader.number_or_yes_no(question.answer, question.question)
    read = None
    if question.evidence:
        read = evidence_read(database, calls, question.evidence, conclusion, question.statements, names)
    named = row_names(question.evidence, database, names) if _SEVERAL.search(answer) else ()
    return JudgeCase(question=question, answer=answer, calls=tuple(calls), evidence_read=read, row_names=named)


def evidence_read(  # noqa: PLR0917  the parts of a question, the most important first
    database: Database,
    calls: Iterable[QueryCall],
    evidence: Sequence[Evidence],
    conclusion: str | None = None,
    gold: Iterable[str] = (),
    names: Mapping[str, Naming] = {},
) -> tuple[Evidence, ...]:
    """Return the items of `evidence` that at least one of `calls` read.

    `conclusion` is a reference answer that follows from cells but is in no cell: a number (in digits), yes or no.
    `gold` are the statements of the gold SQL. `names` maps a table to the column with its rows' names.
    """
    successful = [call for call in calls if call.answer.status == "ok"]
    queries = [_Query(call, evidence, database) for call in successful]
    fields = {fold(item.field) for item in evidence}
    # The columns by which the gold SQL finds the evidence's rows; none if the gold SQL searches the evidence's columns.
    columns = {fold(column) for item in evidence for column in database.schema.columns.get(item.table, ())}
    found_by = {search.column for sql in gold for search in searches(sql)} & columns
    found_by = set() if found_by & fields else found_by
    are_names = fields == {fold(names[item.table].column) for item in evidence if item.table in names}
    read: set[Evidence] = set()
    others = 0
    for query in queries:
        shown, beside = query.shown()
        read |= shown
        others += beside
    left = [item for item in evidence if item not in read and _IDENTIFIER.fullmatch(item.quote)]
    is_shown = any(_contain(call.answer.records, item.quote) for call in successful for item in left)
    copies = {copy: item for item in left if is_shown for copy in _copies(item, names.get(item.table), database)}
    copied = [_Query(call, tuple(copies), database).shown() for call in successful] if copies else []
    if sum(beside for _, beside in copied) <= _MOST_OTHERS:
        read |= {copies[copy] for shown, _ in copied for copy in shown}
    must_depend = read and are_names and found_by
    if others > _MOST_OTHERS or (must_depend and not any(query.depends_on(found_by) for query in queries)):
        read = set()
    for query in queries:
        left = [item for item in evidence if item not in read]
        if conclusion is not None and left:
            if conclusion.isalpha():
                read |= query.decided(left)
            elif query.counts(float(conclusion), found_by or fields):
                read.update(left)
    return tuple(item for item in evidence if item in read)


def row_names(
    evidence: Iterable[Evidence], database: Database, names: Mapping[str, Naming]
) -> tuple[tuple[str, ...], ...]:
    """Return for each item of `evidence` the names of its row, with aliases and everyday names; () without names."""
    evidence = tuple(evidence)
    rows = dict.fromkeys((item.table, item.row_id) for item in evidence)
    named = {row: tuple(_names_of(*row, database, names.get(row[0]))) for row in rows}
    return tuple(named[item.table, item.row_id] for item in evidence)


def _names_of(table: str, row_id: int, database: Database, naming: Naming | None) -> Iterator[str]:
    if naming is None:
        return
    columns = [column for column in (naming.column, *naming.aliases) if column in database.schema.columns[table]]
    for row in _rows(table, row_id, columns, database):
        cells = {column: str(cell) for column, cell in row.items()}
        yield cells[naming.column]
        yield from naming.called.get(cells[naming.column], ())
        for column, aliases_in in naming.aliases.items():
            yield from aliases_in(cells.get(column, ""))


def _copies(item: Evidence, naming: Naming | None, database: Database) -> Iterator[Evidence]:
    """Yield `item` in each other column of its row that has the same text, except in the column of the row's name."""
    for row in _rows(item.table, item.row_id, database.schema.columns.get(item.table, ()), database):
        for column, cell in row.items():
            if cell == item.quote and column not in {item.field, naming and naming.column}:
                yield item.model_copy(update={"field": column})


def _rows(table: str, row_id: int, columns: Sequence[str], database: Database) -> Iterator[dict[str, Cell]]:
    """Yield the row of `table` with the key `row_id` as {column: cell}, or nothing if the table has no row key."""
    key = database.schema.row_key(table)
    if key is None:
        return
    selected = ", ".join(map(quoted, columns))
    answer = database.query(f"SELECT {selected} FROM {quoted(table)} WHERE {quoted(key)} = {row_id}")
    yield from (dict(zip(columns, record, strict=True)) for record in answer.records)


class _Query:
    """A query of the agent, to run again on changed tables."""

    def __init__(self, call: QueryCall, evidence: Sequence[Evidence], database: Database) -> None:
        self._sql, self._records, self._database = call.sql, call.answer.records, database
        self._evidence = evidence
        self._ids: dict[str, tuple[int, ...]] = {}
        for item in evidence:
            self._ids[item.table] = tuple(dict.fromkeys((*self._ids.get(item.table, ()), item.row_id)))

    def shown(self) -> tuple[set[Evidence], int]:
        """Return the evidence items in the result, and the number of other values in the result.

        Other values are from the evidence's columns but from rows without evidence.
        """
        if not any(_contain(self._records, item.quote) for item in self._evidence):
            return set(), 0
        marks = {item: f"‹{number}›" for number, item in enumerate(self._evidence)}
        columns = dict.fromkeys((item.table, item.field) for item in self._evidence)
        changes = [
            Change(table=table, ids=self._ids[table], others=True, column=column, text="‹›", append=True)
            for table, column in columns
        ]
        changes += [
            Change(table=e.table, ids=(e.row_id,), column=e.field, part=e.quote, text=e.quote + mark)
            for e, mark in marks.items()
        ]
        marked = self._over(changes) or ()
        text = "\n".join(str(cell) for record in marked for cell in record)
        found = {item for item, mark in marks.items() if mark in text}
        written = [_squeezed(text) for text in written_texts(self._sql)]
        for item in self._evidence:
            shown = _contain(self._records, item.quote)
            if item in found or not shown or any(_squeezed(item.quote) in text for text in written):
                continue
            # A condition that compares the cell with its text finds no marked cell, so the whole text is replaced.
            other = self._over([_cell(item, _ANOTHER)])
            if other is not None and _contain(other, item.quote) < shown:
                found.add(item)
        return found, text.count("‹›")

    def depends_on(self, columns: Iterable[str]) -> bool:
        """Return whether the result changes if the evidence's rows have another text in `columns`."""
        texts = (_ANOTHER, "; ".join(searched_texts(self._sql)))
        return any(self._changes(self._cells(columns, text)) for text in texts)

    def counts(self, number: float, columns: Iterable[str]) -> bool:
        """Return whether the result shows `number` because of the evidence's rows and their cells in `columns`."""
        written = written_values(self._sql)
        said = _times_said(self._records, number, written)
        if not said or not _times_said(self._over(self._rows(others=True)) or (), number, written):
            return False
        absent = self._over(self._rows(others=False))
        if absent is None or _times_said(absent, number, written) >= said:
            return False
        return self.depends_on(columns)

    def decided(self, evidence: Iterable[Evidence]) -> set[Evidence]:
        """Return the items of `evidence` whose column the statement searches and whose cell decides the result."""
        found = set()
        for item in evidence:
            texts = [
                search.text
                for search in searches(self._sql)
                if search.column == fold(item.field) and len(search.text) >= _LEAST_SEARCHED
            ]
            if not texts:
                continue
            joined = "; ".join(texts)
            others = Change(table=item.table, ids=(item.row_id,), others=True, column=item.field, text=joined)
            cells = [[_cell(item, text)] for text in (_ANOTHER, *texts, joined)]
            if any(map(self._changes, cells)) and not self._changes([others]):
                found.add(item)
        return found

    def _cells(self, columns: Iterable[str], text: str) -> list[Change]:
        return [Change(table=t, ids=ids, column=c, text=text) for t, ids in self._ids.items() for c in columns]

    def _rows(self, *, others: bool) -> list[Change]:
        """Return the changes that remove the evidence's rows, or with `others` all rows except these."""
        return [Change(table=table, ids=ids, others=others) for table, ids in self._ids.items()]

    def _changes(self, changes: Sequence[Change]) -> bool:
        records = self._over(changes)
        return records is not None and records != self._records

    def _over(self, changes: Sequence[Change]) -> Records | None:
        """Return the statement's result on changed tables; None if the statement fails on them."""
        answer = self._database.query(self._sql, changes=changes)
        return answer.records if answer.status == "ok" else None


def _cell(item: Evidence, text: str) -> Change:
    return Change(table=item.table, ids=(item.row_id,), column=item.field, text=text)


def _contain(records: Records, quote: str) -> int:
    """Return how many cells contain the text `quote`, ignoring case and white space."""
    wanted = _squeezed(quote)
    return sum(wanted in _squeezed(str(cell)) for record in records for cell in record)


def _squeezed(text: str) -> str:
    return "".join(text.split()).casefold()


def _times_said(records: Records, number: float, written: frozenset[str]) -> int:
    """Return how often `number` occurs in cells, plus 1 if there are `number` distinct rows.

    Cells that equal a literal of the statement (`written`) do not count.
    """
    cells = (str(cell) for record in records for cell in record if cell is not None)
    found = (float(part) for cell in cells if cell not in written for part in _NUMBER.findall(cell))
    return sum(part == number for part in found) + (len(set(records)) == number)
