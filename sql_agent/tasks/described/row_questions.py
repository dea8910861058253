"""Questions about one or two named rows: columns, parts of cells, cells elsewhere, comparisons."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from functools import cache
from itertools import chain, islice

from sql_agent.database.schema import fold
from sql_agent.tasks.described.conditions import sentences_by_age
from sql_agent.tasks.described.contents import Row
from sql_agent.tasks.described.description import Column, Part
from sql_agent.tasks.described.drafts import MOST_READ, Draft, Drafting, few_with_one_fact
from sql_agent.tasks.described.statement import Output, Statement
from sql_agent.tasks.described.words import Wording

MOST_SIMILAR = 5  # maximum number of similar rows from which another row or a word for the answer no is taken
_SHARED = 12  # number of items of a row, the rarest ones, by which similar rows are found
_MOST_OF_AN_END = 2  # maximum number of shared last characters of two names that count, each like a shared item
LEAST_ALIKE = 4  # minimum number of shared items and characters of two compared rows
_INSTEAD_SHARE = 0.6  # share of the questions whose own column is empty, if a part of another column can answer them
_OTHER_ROW_SHARE = 0.5  # share of them that another row answers, if this row names one with the same contents
_PHRASE_SHARE = 0.7  # share of the parts of a text that are phrases, if there are any; the others are sentences
_PART_SHARE = 0.4  # share of the comparisons, and of the answers elsewhere, that are a part of a cell


class RowQuestions(Drafting):
    def lookup(self) -> Iterator[Draft]:
        """Yield drafts that ask for one column of a named row."""
        for row, name, column in self._cells("lookup"):
            if column.ask and (facts := self._catalog.facts(row, name)):
                yield self._about_row(self._column_of(column, self._name(row)), row, [name], facts)

    def part(self) -> Iterator[Draft]:
        """Yield drafts that ask for some of a list's items or of a text's sentences."""
        yield from few_with_one_fact(self._parts())

    def _parts(self) -> Iterator[Draft]:
        for row, name, column in self._cells("part", "list", "text", "category"):
            part = self._some_part(column)
            if part is not None and (rows := self._catalog.rows_with(row.table, name, part)):
                found = self._chosen.choice(rows)
                inside, age = self._catalog.part(found, name, part), ""
                if part.ages:
                    age, sentence = self._chosen.choice(list(sentences_by_age(inside).items()))
                    inside = [sentence]
                wording = self._column_of(column, self._name(found), part, age=age)
                yield self._read_beside(wording, found, [name], self._without(found, name, part), inside)

    def _without(self, row: Row, name: str, part: Part) -> list[str]:
        """Return the other columns that describe a part of the same key as `part` that their cell in `row` lacks."""
        columns = self._tables[row.table].columns
        (key,) = (key for key, each in columns[name].parts.items() if each is part)
        return [
            other
            for other, each in columns.items()
            if other != name and key in each.parts and (cell := fold(str(row.values[other] or "")))
            if not any(word in cell for word in each.parts[key].words)
        ]

    def _some_part(self, column: Column) -> Part | None:
        parts = [part for part in column.parts.values() if part.ask]
        if column.kind == "text" and any(part.pattern for part in parts) and self._chosen.random() < _PHRASE_SHARE:
            parts = [part for part in parts if part.pattern]
        return self._chosen.choice(parts) if parts else None

    def elsewhere(self) -> Iterator[Draft]:
        """Yield drafts with two statements: the first reads an empty cell, and the second the cell with the answer.

        The question asks for the empty cell, and a part of the other cell, or the cell of another row, answers it; or
        it asks for the other cell.
        """
        for row, empty, column in self._cells("elsewhere"):
            if self._chosen.random() < _OTHER_ROW_SHARE and (pairs := self._catalog.other_rows(row.table, empty)):
                yield from self._in_another_row(*self._chosen.choice(pairs), empty, column)
                continue
            instead = self._catalog.instead(row.table, empty)
            part: Part | None
            if instead and self._chosen.random() < _INSTEAD_SHARE:
                asked, (name, part) = column, self._chosen.choice(instead)
                rows = [r for r in self._catalog.rows_with(row.table, name, part) if r.values[empty] is None]
            elif confused := self._confused(row.table, empty):
                asked, name, part = confused
                rows = self._catalog.empty_rows(row.table, empty, name)
            else:
                continue
            if not rows or not asked.ask or (part and part.ages):
                continue
            found = self._chosen.choice(rows)
            if facts := self._catalog.facts(found, name, part):
                wording = self._column_of(asked, self._name(found), part)
                statements = [Statement(row.table, (Output(each),), where=(self._is(found),)) for each in (empty, name)]
                yield self._reading(wording, statements, [found], facts, subject=found)

    def _in_another_row(self, row: Row, other: Row, empty: str, column: Column) -> Iterator[Draft]:
        """Yield a draft that reads the empty cell of `row`, then that of `other`, as the hint says to do."""
        part = self._some_part(column) if self._chosen.random() < _PART_SHARE else None
        if column.ask and not (part and part.ages) and (facts := self._catalog.facts(other, empty, part)):
            statements = [Statement(row.table, (Output(empty),), where=(self._is(each),)) for each in (row, other)]
            wording = self._column_of(column, self._name(row), part)
            yield self._reading(wording, statements, [other], facts, also=[row], subject=row)

    def _confused(self, table: str, empty: str) -> tuple[Column, str, Part | None] | None:
        """Return a column that people take for `empty`, its name, and perhaps a part; None if no column has `near`."""
        others = {name: each for name, each in self._tables[table].columns.items() if each.ask and name != empty}
        if not any(each.near for each in others.values()):
            return None
        filled = [name for name in others if self._catalog.empty_rows(table, empty, name)]
        name = self._chosen.choice([name for name in filled if empty in others[name].near] or filled or [empty])
        asked = self._tables[table].columns[name]
        return asked, name, self._some_part(asked) if self._chosen.random() < _PART_SHARE else None

    def columns(self) -> Iterator[Draft]:
        """Yield drafts that ask for two columns of a row."""
        kinds = ("text", "category", "number", "date", "list")
        for row, first, column in self._cells("columns", *kinds):
            others, beside = self._table_columns(row.table, *kinds), self._beside("columns", row.table, first)
            wanted = others if beside is None else beside
            filled = [name for name in wanted if name != first and row.values[name] is not None]
            second = self._chosen.choice(filled) if filled else first
            facts = [self._catalog.facts(row, name) for name in (first, second)]
            if second != first and all(facts):
                spoken = [self._spoken(each).cell_label for each in (column, others[second])]
                labels = {"label": spoken[0], "label2": spoken[1]}
                wording = self._sentence("several", name=self._name(row), **labels)
                yield self._about_row(wording, row, [first, second], [*facts[0], *facts[1]])

    def _read_beside(
        self, wording: Wording, row: Row, needed: Sequence[str], beside: Sequence[str], facts: Iterable[str]
    ) -> Draft:
        """Return a draft about the cells of the columns `needed`, which also reads those of `beside`, if all are short.

        The wording does not tell which of these columns has the answer.
        """
        columns = [name for name in self._tables[row.table].columns if name in {*needed, *beside}]
        is_short = sum(len(str(row.values[name])) for name in columns) <= MOST_READ
        draft = self._about_row(wording, row, columns if is_short else needed, facts)
        return replace(draft, evidence=tuple(item for column in needed for item in row.evidence(column)))

    def comparison(self) -> Iterator[Draft]:
        """Yield drafts that ask which of two rows has the larger number or later date, or for a column of both."""
        for row, name, column in self._cells("comparison", "number", "date", "category", "list", "text"):
            parts = [part for part in column.parts.values() if part.ask_two]
            if parts and not self._catalog.facts(row, name):
                yield from self._part_of_two(row.table, name, column, self._chosen.choice(parts))
                continue
            alike = self._tables[row.table].alike
            similar = self._similar(row, name, LEAST_ALIKE if alike else 1)
            if not similar:
                continue
            other = similar[0] if alike else self._chosen.choice(similar)
            both = row, other
            slots = self._slots(column, name=self._name(row), other=self._name(other))
            differ = column.kind in {"number", "date"} and row.values[name] != other.values[name]
            if differ and self._chosen.random() < 0.7:
                best = max(both, key=lambda each: each.values[name])  # type: ignore[arg-type, return-value]
                cells = self._cells_of(both, name)
                names, order = cells.outputs
                statement = replace(cells, outputs=(names,), order_by=order, descending=True, limit=1)
                wording = self._sentence("higher" if column.kind == "number" else "later", **slots)
                yield self._reading(wording, [statement], [best], also=both)
                continue
            part = self._chosen.choice(parts) if parts and self._chosen.random() < _PART_SHARE else None
            answers = [self._catalog.facts(each, name, part) for each in both]
            if all(answers):
                plain = "both_lists" if column.kind == "list" else "both"
                wording = self._say(part.ask_two if part else self._either(column.ask_two, plain), **slots)
                yield self._of_both(wording, both, name, self._by_name(both, answers))

    def _part_of_two(self, table: str, name: str, column: Column, part: Part) -> Iterator[Draft]:
        """Yield a draft that asks for a part of a cell of two rows that have it, such as the figure in a long text."""
        if len(rows := self._catalog.rows_with(table, name, part)) > 1:
            both = row, other = self._chosen.sample(rows, 2)
            answers = [self._catalog.part(each, name, part) for each in both]
            wording = self._say(part.ask_two, **self._slots(column, name=self._name(row), other=self._name(other)))
            yield self._of_both(wording, both, name, self._by_name(both, answers))

    def _of_both(self, wording: Wording, rows: Sequence[Row], name: str, facts: Sequence[str]) -> Draft:
        """Return a draft about `rows`. Its statement reads their names and their cells of the column `name`."""
        return self._reading(wording, [self._cells_of(rows, name)], rows, facts)

    def _cells_of(self, rows: Sequence[Row], name: str) -> Statement:
        outputs = Output(rows[0].name_column), Output(name)
        return Statement(rows[0].table, outputs, where=tuple(map(self._is, rows)), any_test=True)

    def _similar(self, row: Row, column: str, least: int = 1) -> list[Row]:
        """Return rows that questions can name, that have a value in `column`, and that are like `row`.

        They share at least `least` rare items and last characters of the name with `row`. If the table has no
        searchable list or text, all rows with a name and a value in `column` are returned.
        """
        if not self._catalog.conditions_by_word(row.table):
            return [each for each in self._catalog.filled_rows(row.table, column) if each is not row]
        likely = (each for each, shared in self._common(row) if shared >= least)
        filled = (each for each in likely if each.named and str(each.values[column] or "").strip())
        return list(islice(filled, MOST_SIMILAR))

    @cache
    def _common(self, row: Row) -> list[tuple[Row, int]]:
        """Return other rows, the most similar first, with their shared rare items plus last characters of the name."""
        by_word, table = self._catalog.conditions_by_word(row.table), self._tables[row.table]
        lists = table.alike or self._table_columns(row.table, "list")
        conditions = [by_word.get((name, word)) for name in lists for word in self._catalog.words_of(row, name)]
        having = [self._catalog.places(row.table, condition) for condition in conditions if condition is not None]
        common = Counter(chain.from_iterable(sorted(having, key=len)[:_SHARED]))
        del common[row.place]
        rows, ends = self._catalog.rows[row.table], {row.name[-length:] for length in range(1, _MOST_OF_AN_END + 1)}
        alike = {place: common[place] + sum(map(rows[place].name.endswith, ends)) for place in sorted(common)}
        return [(rows[place], shared) for place, shared in Counter(alike).most_common()]

    def _column_of(self, column: Column, name: str, part: Part | None = None, **slots: str) -> Wording:
        return self._say((part and part.ask) or column.ask, **self._slots(column, name=name, **slots))
