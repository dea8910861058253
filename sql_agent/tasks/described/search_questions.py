"""Questions that search rows by conditions, count them, group them, or find the first of an order."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import chain, islice

from sql_agent.schemas import Cell
from sql_agent.tasks.described.conditions import Condition, searching
from sql_agent.tasks.described.contents import Row
from sql_agent.tasks.described.description import Column, owner_of
from sql_agent.tasks.described.drafts import MOST_COUNTED, MOST_ROWS, Draft, Drafting, few_with_one_fact
from sql_agent.tasks.described.statement import COUNT, Comparison, Output, Statement
from sql_agent.tasks.described.words import Wording, is_noun, with_article

_GAPS_SHARE = 0.3  # share of the mostly empty columns whose filled cells are counted
_MOST_COLUMNS = 3  # maximum number of drafts that ask for a column of the same rows
_MOST_THEN = 5  # maximum number of these rows
_LEAST_PAIRS = 400  # minimum number of pairs of conditions that are tried for each column of the first one


class SearchQuestions(Drafting):
    def search(self) -> Iterator[Draft]:
        """Yield drafts that ask which rows have a value, an item of a list, or a word in a text."""
        yield from self._searches("search", {"category", "list", "text", "name", "flag"})

    def range(self) -> Iterator[Draft]:
        """Yield drafts that ask which rows have a number or a date in a range."""
        yield from self._searches("range", {"above", "below", "between", "in", "after", "before"})

    def _searches(self, task_type: str, phrases: set[str]) -> Iterator[Draft]:
        for table, condition in self._conditions(task_type):
            # A person who searches a word means all cells that contain it, also inside a longer item.
            found = self._catalog.matching(table, *condition.tests) if condition.phrase in phrases else []
            if found and len(found) < len(self._catalog.rows[table]):
                wording = self._searched("find", "search", table, condition)
                yield from self._names(wording, table, found, condition.tests, condition)

    def _searched(self, own: str, plain: str, table: str, condition: Condition) -> Wording:
        """Return a wording for one condition, from the sentences `plain` and the column's wordings `own`."""
        column = self._tables[table].columns[condition.column]
        has_words = condition.phrase in {"list", "text", "name", "category"}
        templates = self._either(getattr(column, own) if has_words else (), plain)
        return self._condition_wording(templates, table, condition)

    def related(self) -> Iterator[Draft]:
        """Yield drafts that ask which rows have a word of a search's first column in any of its columns."""
        conditions = [(t, c) for t, c in self._conditions("related") if c.has_word]
        ways = [
            (table, search, condition)
            for table, of in self._tables.items()
            for search in of.searches.values()
            for condition in [searching(search.columns[0], word, "text") for word in search.words]
            or [c for t, c in conditions if t == table and c.column == search.columns[0]]
        ]
        for table, search, condition in self._shuffled(ways):
            tests = tuple(Comparison(column, "LIKE", condition.value) for column in search.columns)
            found = {row.place: row for test in tests for row in self._catalog.matching(table, test)}
            if len(found) < len(self._catalog.rows[table]):
                wording = self._condition_wording(search.ask, table, condition)
                rows = [found[place] for place in sorted(found)]
                yield from self._names(wording, table, rows, tests, condition, any_test=True)

    def search_column(self) -> Iterator[Draft]:
        """Yield drafts that ask for another column of the rows that have an item or a word that is in no row's name."""
        for table, condition in self._conditions("search_column"):
            then, name = self._catalog.column(table, condition.column).then, self._tables[table].name
            is_named = condition.value.casefold() in self._catalog.all_names(table)
            if name is None or not then or not condition.has_word or is_named:
                continue
            found = self._catalog.meeting(table, condition, most=_MOST_THEN)
            if not found or not all(row.named for row in found):
                continue
            answers = {asked: [self._then(row, asked) for row in found] for asked in self._shuffled(then)}
            for asked in islice((asked for asked in answers if all(answers[asked])), _MOST_COLUMNS):
                statement = Statement(table, (Output(name), Output(owner_of(asked))), where=condition.tests)
                wording = self._condition_wording(then[asked], table, condition)
                facts = self._by_name(found, answers[asked])
                if self._catalog.column(table, owner_of(asked)).kind == "category":  # who makes them: firms, once each
                    facts = tuple(dict.fromkeys(chain.from_iterable(answers[asked])))
                yield self._reading(wording, [statement], found, facts, conditions=(condition,))

    def _then(self, row: Row, asked: str) -> list[str]:
        """Return the facts of the column or the "column.part" `asked` of a row."""
        name, _, part = asked.partition(".")
        return self._catalog.facts(row, name, self._catalog.column(row.table, name).parts[part] if part else None)

    def any_of(self) -> Iterator[Draft]:
        """Yield drafts that ask for any three of the rows that meet a condition."""
        for table, condition in self._conditions("any_of"):
            found = self._catalog.meeting(table, condition, most=MOST_COUNTED)
            if len(found) >= 4:
                wording = self._searched("any_of", "any_of", table, condition)
                yield from self._names(wording, table, found, condition.tests, condition, enough=3)

    def two_conditions(self) -> Iterator[Draft]:
        """Yield drafts that ask which rows meet two conditions."""
        yield from few_with_one_fact(self._of_both())

    def _of_both(self) -> Iterator[Draft]:
        for table, first in self._conditions("two_conditions", _LEAST_PAIRS):
            second = self._other("two_conditions", table, first)
            # People who say the name of a row mean this row, and not the rows that mention it.
            if second is None or first.value in self._catalog.names_of(table):
                continue
            if self._says(table, second, "has") and self._says(table, first, "find_two"):
                both = self._catalog.meeting(table, first, second, most=MOST_ROWS)
                if both and all(len(both) < len(self._catalog.matching(table, *c.tests)) for c in (first, second)):
                    wording = self._of_two("two", "do2", table, first, second)
                    tests = (*first.tests, *second.tests)
                    yield from self._names(wording, table, both, tests, first, second)

    def negation(self) -> Iterator[Draft]:
        """Yield drafts that ask which rows meet one condition and not another."""
        for table, first in self._conditions("negation"):
            second = self._other("negation", table, first)
            if second is None or not second.opposite or not self._says(table, second, "lacks"):
                continue
            without = self._catalog.meeting(table, first, without=second, most=MOST_ROWS)
            found = self._catalog.meeting(table, first) if without else []
            filled_cells = all(row.values[second.column] not in {None, ""} for row in found)
            if filled_cells and 0 < len(without) < len(found):
                wording = self._of_two("negation", "dont2", table, first, second)
                tests = (*first.tests, *second.opposite)
                yield from self._names(wording, table, without, tests, first, second)

    def _says(self, table: str, condition: Condition, wordings: str) -> bool:
        """Return whether the field `wordings` of the condition's column is filled, or empty in all columns."""
        said = [name for name, column in self._tables[table].columns.items() if getattr(column, wordings)]
        return not said or condition.column in said

    def _of_two(self, plain: str, slot: str, table: str, first: Condition, second: Condition) -> Wording:
        """Return a wording for two conditions; {and_other} becomes the phrase `slot` of the second condition."""
        column, other = (self._catalog.column(table, each.column) for each in (first, second))
        own = column.find_two if (other.lacks if slot == "dont2" else other.has) else ()
        wording = self._condition_wording(self._either(own, plain), table, first, second)
        return replace(wording, phrases={**wording.phrases, "and_other": wording.phrases[slot]})

    def count(self) -> Iterator[Draft]:
        """Yield drafts that ask for the number of all rows, of rows under a condition, or of distinct values."""
        for table, described in self._tables.items():
            if not is_noun(described.label):
                continue
            rows, slots = self._catalog.rows[table], self._table_slots(table)
            wording = self._sentence("count_all", **slots)
            yield self._number(wording, Statement(table, (COUNT,)), len(rows))
            for name, column in described.columns.items():
                filled = [row.values[name] for row in rows if row.values[name] is not None]
                kinds = set(filled)
                few = 0 < 2 * len(filled) < len(rows) and "" not in kinds and column.kind != "flag"
                if few and self._chosen.random() < _GAPS_SHARE:
                    statement = Statement(table, (COUNT,), where=(Comparison(name, "IS NOT", None),))
                    labels = {"label": column.label, "a_label": with_article(column.label)}
                    wording = self._sentence("count_filled", **slots, **labels)
                    yield self._number(wording, statement, len(filled))
                if column.kind == "category" and len(kinds) > 1 and self._is_wanted("count", table, name):
                    statement = Statement(table, (Output(name, function="COUNT", distinct=True),))
                    wording = self._sentence("count_kinds", **slots, **self._slots(column))
                    yield self._number(wording, statement, len(kinds))
        for table, condition in self._conditions("count"):
            found = self._catalog.matching(table, *condition.tests)
            clear = len(found) > MOST_COUNTED or self._catalog.meeting(table, condition)
            if clear and 0 < len(found) < len(self._catalog.rows[table]):
                wording = self._searched("count", "count", table, condition)
                statement = Statement(table, (COUNT,), where=condition.tests)
                cells = [(row, row.name_column or condition.column) for row in found]
                yield self._number(wording, statement, len(found), counted=cells, conditions=(condition,))

    def group(self) -> Iterator[Draft]:
        """Yield drafts that ask which value is in most rows, or which values are in more rows than a given number."""

        def draft(wording: Wording, statement: Statement, values: Sequence[Cell]) -> Draft:
            return Draft(wording, (statement,), tuple((each,) for each in values), tuple(map(str, values)))

        columns = [(t, name, c) for t in self._tables for name, c in self._table_columns(t, "category").items()]
        for table, name, column in self._shuffled(columns):
            cells = [row.values[name] for row in self._catalog.rows[table]]
            counts = Counter(cell for cell in cells if cell is not None).most_common()
            slots = {**self._table_slots(table), **self._slots(column)}
            where = (Comparison(name, "IS NOT", None),) if None in cells else ()
            grouped = Statement(table, (Output(name),), where=where, group_by=Output(name))
            if len(counts) > 1 and counts[0][1] > counts[1][1]:
                statement = replace(grouped, order_by=COUNT, descending=True, limit=1)
                yield draft(self._sentence("most", **slots), statement, [counts[0][0]])
            for limit in sorted({count for _, count in counts}):
                more = [value for value, count in counts if count > limit]
                if 1 <= len(more) <= 5 and limit > 1:
                    wording = self._sentence("more_than", **slots, value=str(limit))
                    yield draft(wording, replace(grouped, more_than=limit), more)

    def superlative(self) -> Iterator[Draft]:
        """Yield drafts that ask which row has the largest or smallest number, or the first or last date."""
        conditions: list[tuple[str, Condition | None]] = [*self._conditions("superlative")]
        wanted = self._shuffled([*((table, None) for table in self._tables), *conditions[:2000]])
        for table, condition in wanted:
            for name, column in self._table_columns(table, "number", "date").items():
                if (condition is None or condition.column != name) and self._tables[table].name is not None:
                    yield from self._best(table, name, column, condition)

    def _best(self, table: str, name: str, column: Column, condition: Condition | None) -> Iterator[Draft]:
        where, is_filled = condition.tests if condition else (), Comparison(name, "IS NOT", None)
        rows = self._catalog.matching(table, *where, is_filled)
        descending = self._chosen.random() < 0.6
        ordered = sorted(rows, key=lambda row: row.values[name], reverse=descending)  # type: ignore[arg-type, return-value]
        if len(ordered) < 4 or ordered[0].values[name] == ordered[1].values[name]:
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
        wording = self._sentence(sentence, **slots)
        if condition is not None:
            own = self._condition_wording(self._words["sentences"][f"{sentence}_with"], table, condition)
            wording = replace(own, slots={**own.slots, **slots})
        if len(self._catalog.matching(table, *where)) > len(rows):
            where = (*where, is_filled)
        statement = Statement(table, (Output(best[0].name_column),), where=where, order_by=Output(name),
                              descending=descending, limit=len(best))  # fmt: skip
        yield self._reading(wording, [statement], best)
