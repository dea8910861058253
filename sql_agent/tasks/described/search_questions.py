"""Questions that search rows by conditions, count and group them, and find the first of an order."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import replace

from sql_agent.tasks.described.catalog import Condition, Row
from sql_agent.tasks.described.description import Column
from sql_agent.tasks.described.drafts import MOST_COUNTED, Draft, Drafting
from sql_agent.tasks.described.statement import COUNT, Comparison, Output, Statement


class SearchQuestions(Drafting):
    """Yields drafts about the rows of one table, in random order."""

    def search(self) -> Iterator[Draft]:
        """Yield questions which rows have a value, an item of a list, or a word in a text."""
        yield from self._searches("search", {"category", "list", "text", "name", "flag"})

    def range(self) -> Iterator[Draft]:
        """Yield questions which rows have a number or a date in a range."""
        yield from self._searches("range", {"above", "below", "between", "in", "after", "before"})

    def _searches(self, task_type: str, phrases: set[str]) -> Iterator[Draft]:
        for table, condition in self._conditions():
            found = self._catalog.matching(table, *condition.tests) if condition.phrase in phrases else []
            if found and len(found) < len(self._catalog.rows[table]):
                yield from self._names(
                    task_type, "search", table, conditions=[condition], tests=condition.tests, found=found
                )

    def any_of(self) -> Iterator[Draft]:
        """Yield questions for any three of the rows that meet a condition."""
        for table, condition in self._conditions():
            found = self._catalog.matching(table, *condition.tests)
            if 4 <= len(found) <= MOST_COUNTED:
                yield from self._names(
                    "any_of", "any_of", table, conditions=[condition], tests=condition.tests, found=found, enough=3
                )

    def two_conditions(self) -> Iterator[Draft]:
        """Yield questions which rows meet two conditions."""
        for table, first in self._conditions():
            second = self._other(table, first)
            if second is not None:
                alone = [self._catalog.matching(table, *each.tests) for each in (first, second)]
                both = self._catalog.matching(table, *first.tests, *second.tests)
                if 0 < len(both) < min(map(len, alone)):
                    tests = (*first.tests, *second.tests)
                    yield from self._names(
                        "two_conditions", "two", table, conditions=[first, second], tests=tests, found=both
                    )

    def negation(self) -> Iterator[Draft]:
        """Yield questions which rows meet one condition and not another."""
        for table, first in self._conditions():
            second = self._other(table, first)
            if second is None or not second.opposite:
                continue
            found = self._catalog.matching(table, *first.tests)
            without = self._catalog.matching(table, *first.tests, *second.opposite)
            filled_cells = all(row.values[second.column] not in {None, ""} for row in found)
            if filled_cells and 0 < len(without) < len(found):
                tests = (*first.tests, *second.opposite)
                yield from self._names(
                    "negation", "negation", table, conditions=[first, second], tests=tests, found=without
                )

    def count(self) -> Iterator[Draft]:
        """Yield questions how many rows there are, with a condition, or how many different values."""
        for table, described in self._tables.items():
            text = self._sentence("count_all", **self._table_slots(table))
            yield self._number("count", text, Statement(table, (COUNT,)), len(self._catalog.rows[table]))
            for name, column in described.columns.items():
                kinds = {row.values[name] for row in self._catalog.rows[table]} - {None}
                if column.kind == "category" and len(kinds) > 1:
                    statement = Statement(table, (Output(name, count=True, distinct=True),))
                    text = self._sentence("count_kinds", **self._table_slots(table), **self._slots(column))
                    yield self._number("count", text, statement, len(kinds))
        for table, condition in self._conditions():
            found = self._catalog.matching(table, *condition.tests)
            if 0 < len(found) < len(self._catalog.rows[table]):
                text = self._sentence("count", **self._table_slots(table), **self._phrase(table, condition))
                statement = Statement(table, (COUNT,), where=condition.tests)
                cells = [(row, row.name_column or condition.column) for row in found]
                yield self._number("count", text, statement, len(found), counted=cells)

    def group(self) -> Iterator[Draft]:
        """Yield questions which value most rows have, and which values more than a number of rows have."""
        columns = [(t, name, c) for t in self._tables for name, c in self._table_columns(t, "category").items()]
        for table, name, column in self._shuffled(columns):
            cells = [row.values[name] for row in self._catalog.rows[table]]
            counts = Counter(cell for cell in cells if cell is not None).most_common()
            slots = {**self._table_slots(table), **self._slots(column)}
            where = (Comparison(name, "IS NOT", None),) if None in cells else ()
            grouped = Statement(table, (Output(name),), where=where, group_by=Output(name))
            if len(counts) > 1 and counts[0][1] > counts[1][1]:
                statement = replace(grouped, order_by=COUNT, descending=True, limit=1)
                text = self._sentence("most", **slots)
                yield Draft("group", text, statement, ((counts[0][0],),), (str(counts[0][0]),))
            for limit in sorted({count for _, count in counts}):
                more = [value for value, count in counts if count > limit]
                if 1 <= len(more) <= 5 and limit > 1:
                    text = self._sentence("more_than", **slots, value=str(limit))
                    yield Draft("group", text, replace(grouped, more_than=limit), tuple((each,) for each in more),
                                tuple(map(str, more)))  # fmt: skip

    def superlative(self) -> Iterator[Draft]:
        """Yield questions which row has the most or least of a number, or the first or last date."""
        columns = [(t, n, c) for t in self._tables for n, c in self._table_columns(t, "number", "date").items()]
        conditions: list[tuple[str, Condition | None]] = [*self._conditions()]
        wanted = self._shuffled([*((table, None) for table in self._tables), *conditions[:2000]])
        for table, condition in wanted:
            for owner, name, column in columns:
                if owner != table or (condition and condition.column == name) or self._tables[table].name is None:
                    continue
                where = condition.tests if condition else ()
                rows = self._catalog.matching(table, *where, Comparison(name, "IS NOT", None))
                yield from self._best(table, name, column, rows, condition)

    def _best(
        self, table: str, name: str, column: Column, rows: Sequence[Row], condition: Condition | None
    ) -> Iterator[Draft]:
        descending = self._chosen.random() < 0.6
        ordered = sorted(rows, key=lambda row: row.values[name], reverse=descending)  # type: ignore[arg-type, return-value]
        named = self._tables[table].name
        if len(ordered) < 4 or ordered[0].values[name] == ordered[1].values[name] or named is None:
            return
        words = ("highest", "lowest") if column.kind == "number" else ("latest", "earliest")
        sentence, best = words[0 if descending else 1], ordered[:1]
        if condition is None and column.kind == "number" and self._chosen.random() < 0.5 and descending:
            if len({row.values[name] for row in ordered[:4]}) < 4:
                return
            sentence, best = "top", ordered[:3]
        if not all(row.named for row in best):
            return
        slots = {**self._table_slots(table), **self._most_slots(column)}
        if condition is not None:
            sentence, slots = f"{sentence}_with", {**slots, **self._phrase(table, condition)}
        where = condition.tests if condition else ()
        if len(self._catalog.matching(table, *where)) > len(rows):
            where = (*where, Comparison(name, "IS NOT", None))
        statement = Statement(table, (Output(named),), where=where, order_by=Output(name), descending=descending,
                              limit=len(best))  # fmt: skip
        yield Draft(
            "superlative",
            self._sentence(sentence, **slots),
            statement,
            tuple((row.values[named],) for row in best),
            tuple(row.name for row in best),
            tuple(item for row in best for item in row.evidence(named)),
            frozenset(row.key for row in best),
        )
