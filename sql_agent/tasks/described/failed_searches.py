"""Start a question's statements with a realistic one that finds nothing and whose hint leads to the answer."""

from __future__ import annotations

import random
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from sql_agent.database.hints import suggested_statements
from sql_agent.schemas import Cell, QueryAnswer
from sql_agent.tasks.described.catalog import Catalog
from sql_agent.tasks.described.conditions import Condition
from sql_agent.tasks.described.contents import Row
from sql_agent.tasks.described.drafts import MOST_READ, Draft
from sql_agent.tasks.described.statement import Comparison, Output, Statement

SHARE = 0.4  # share of the questions for which a failing statement is sought; not each search succeeds
_MOST_BESIDE = 4  # maximum number of Chinese characters that are mistaken for a part of a name
_END = re.compile(r"[\s，。？！、：；“”,.?!:;\"'’…-]")
_ONE_CELL = frozenset({"lookup", "part", "yes_no"})  # types of questions that one cell answers


@dataclass(frozen=True)
class Route:
    """The statements of a question in order, and the rows that the last one returns."""

    statements: tuple[str, ...]
    expected: tuple[tuple[Cell, ...], ...]


class FailedSearches:
    """Makes first statements that find nothing, as those of people and models often do.

    Such a statement searches a word as if it were a name, searches another column or table, or searches a value
    together with other words of the question.
    """

    def __init__(self, catalog: Catalog, query: Callable[[str], QueryAnswer], chosen: random.Random) -> None:
        self._catalog, self._query, self._chosen = catalog, query, chosen

    def direct(self, draft: Draft) -> Route:
        """Return the route without a failed search."""
        return Route(tuple(each.sql(self._catalog.database) for each in draft.statements), draft.expected)

    def around(self, draft: Draft, text: str) -> Route | None:
        """Return a route whose first statement finds nothing, or None; `text` is the question."""
        statement = draft.statement
        if draft.task_type == "elsewhere":
            return self.after(replace(draft, statements=(statement,)), draft.statements[0], statement.outputs[0].column)
        if len(draft.statements) > 1 or statement.joins or statement.any_test or self._chosen.random() >= SHARE:
            return None
        ways: list[Callable[[], tuple[Statement, str] | None]] = []
        searched = [each for each in draft.conditions if each.has_word]
        if (row := draft.subject) is not None and draft.task_type in _ONE_CELL:
            test = Comparison(row.name_column, "=", row.values[row.name_column])
            ways = [
                *[lambda: self._empty_column(draft, row)] * 2,
                lambda: self._other_table(row),
                lambda: self._words_beside(draft, test, text),
            ]
        elif searched:
            condition = self._chosen.choice(searched)
            ways = [
                lambda: self._as_a_name(draft, condition),
                lambda: self._other_column(draft, condition),
                lambda: self._words_beside(draft, condition.tests[0], text),
            ]
        self._chosen.shuffle(ways)
        found = filter(None, (way() for way in ways))
        return next((route for each in found if (route := self.after(draft, *each)) is not None), None)

    def after(self, draft: Draft, first: Statement, needed: str) -> Route | None:
        """Return a route that starts with `first`; None if `first` fails or finds something.

        The next statement is one that the hint of `first` suggests, if it contains `needed` and returns the expected
        rows. Otherwise the draft's own statements follow if the hint contains `needed`; if not, return None.
        """
        direct, sql = self.direct(draft), first.sql(self._catalog.database)
        answer = self._query(sql)
        if not finds_nothing(answer):
            return None
        read = f" FROM {self._catalog.database.written(draft.statement.table)} "  # another table may have the same text
        suggestions = suggested_statements(answer.hint) if len(direct.statements) == 1 else ()
        for suggested in suggestions:
            found = self._query(suggested) if read in suggested and needed in suggested else None
            if found is not None and found.error is None and _contain(found.records, draft.expected):
                return Route((sql, suggested), found.records)
        return Route((sql, *direct.statements), draft.expected) if needed in (answer.hint or "") else None

    def looking_again(self, route: Route) -> Route | None:
        """Return `route`. If its last statement finds nothing, add the first statement that the hint suggests, if any.

        Return None if the suggested statement has the same columns as the last one: then it reads another row.
        """
        answer = self._query(route.statements[-1])
        suggestions = suggested_statements(answer.hint) if finds_nothing(answer) else ()
        if not suggestions:
            return route
        found = self._query(suggestions[0])
        return None if found.columns == answer.columns else Route((*route.statements, suggestions[0]), found.records)

    def two_columns(self, draft: Draft) -> Draft:
        """Return the draft. If possible, its statement also reads a column that people confuse with the first."""
        row, statement = draft.subject, draft.statement
        if row is None or draft.task_type not in _ONE_CELL or len(statement.outputs) != 1:
            return draft
        column = statement.outputs[0].column
        near = [name for name in self._catalog.column(row.table, column).near if row.values[name] is not None]
        both = self._chosen.sample([column, self._chosen.choice(near)], 2) if near else []
        cells = tuple(row.values[name] for name in both)
        if not both or sum(len(str(cell)) for cell in cells) > MOST_READ:
            return draft
        return replace(draft, statements=(replace(statement, outputs=tuple(map(Output, both))),), expected=(cells,))

    def _empty_column(self, draft: Draft, row: Row) -> tuple[Statement, str] | None:
        column = draft.statement.outputs[0].column
        empty = [name for name in self._catalog.column(row.table, column).near if row.values[name] is None]
        if not empty or draft.expected[0][0] is None:
            return None
        return replace(draft.statement, outputs=(Output(self._chosen.choice(empty)),)), column

    def _other_table(self, row: Row) -> tuple[Statement, str] | None:
        tables = self._catalog.description.tables
        others = [name for name, table in tables.items() if name != row.table and table.name is not None]
        if not others:
            return None
        other = self._chosen.choice(others)
        columns = tables[other].columns
        readable = [name for name, column in columns.items() if column.kind in {"list", "text"}]
        output = Output(self._chosen.choice(readable or list(columns)))
        where = (Comparison(tables[other].name or "", "=", row.name),)
        return Statement(other, (output,), where), row.table

    def _as_a_name(self, draft: Draft, condition: Condition) -> tuple[Statement, str] | None:
        name = self._catalog.table(draft.statement.table).name
        if name is None or name == condition.column:
            return None
        return _with_test(draft, condition.tests[0], Comparison(name, "=", condition.value)), condition.column

    def _other_column(self, draft: Draft, condition: Condition) -> tuple[Statement, str] | None:
        near = self._catalog.column(draft.statement.table, condition.column).near
        if not near:
            return None
        elsewhere = Comparison(self._chosen.choice(near), "LIKE", condition.value)
        return _with_test(draft, condition.tests[0], elsewhere), condition.column

    def _words_beside(self, draft: Draft, test: Comparison, text: str) -> tuple[Statement, str] | None:
        """Return (statement, value of `test`), or None; the statement searches the value and the words beside it."""
        value = str(test.value)
        before, found, after = text.partition(value)
        clause = _END.split(before)[-1] + value + _END.split(after)[0]
        texts = (_beside(before[::-1])[::-1] + value, value + _beside(after), clause) if found else ()
        longer = [each for each in map(str.strip, texts) if each != value]
        if not longer:
            return None
        return _with_test(draft, test, replace(test, value=self._chosen.choice(longer))), value


def _with_test(draft: Draft, test: Comparison, other: Comparison) -> Statement:
    return replace(draft.statement, where=tuple(other if each == test else each for each in draft.statement.where))


def finds_nothing(answer: QueryAnswer) -> bool:
    """Return whether a statement ran without an error, and each cell of its result is NULL, empty or 0."""
    return answer.error is None and not any(cell for row in answer.records for cell in row)


def _contain(rows: Sequence[tuple[Cell, ...]], expected: Sequence[tuple[Cell, ...]]) -> bool:
    """Return whether `rows` are the expected rows, in any order, perhaps with more columns."""
    left = list(rows)
    for row in expected:
        same = next((each for each in left if set(map(str, row)) <= set(map(str, each))), None)
        if same is None:
            return False
        left.remove(same)
    return not left


def _beside(text: str) -> str:
    """Return the start of `text` up to a punctuation mark: an English word or some Chinese characters."""
    if text[:1] == " ":
        return " " + _END.split(text[1:], maxsplit=1)[0]
    return _END.split(text, maxsplit=1)[0][:_MOST_BESIDE]
