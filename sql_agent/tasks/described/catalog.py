"""The rows of a described database as questions need them: names, items, linked rows, conditions on columns."""

from __future__ import annotations

import math
import random
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from itertools import pairwise
from statistics import median

from sql_agent.reward.judges.items import split
from sql_agent.schemas import Cell, Evidence
from sql_agent.tasks.described.description import Column, Description, Link, Table
from sql_agent.tasks.described.guess import DATE
from sql_agent.tasks.described.statement import Comparison, Operator
from sql_agent.tasks.described.table_rows import DatabaseRows
from sql_agent.tasks.described.words import is_verb, wordings

_LONGEST = 80  # characters of a value that an answer repeats
_WORD = re.compile(r"[A-Za-z]{5,}")
_TRUE = frozenset({"yes", "y", "true", "t", "1", "1.0", "是", "有"})
_PERIODS: tuple[tuple[str, Operator], ...] = (("category", "="), ("after", ">"), ("before", "<"))
_MOST_OF_A_COLUMN = 40  # conditions
_MOST_SEARCHED = 60  # words or items of a column that are searched for
_PROSE_WORDS = 4  # a shorter text is a value of its own, such as an address
_COMMON = frozenset({"about", "after", "their", "there", "these", "which", "where", "while", "would", "other", "being"})


@dataclass(frozen=True, eq=False)
class Row:
    """A row. `named` is whether its name, in `name_column`, names no other row and fits into a question."""

    table: str
    number: int | None
    key: tuple[str, str]
    values: Mapping[str, Cell]
    name_column: str
    name: str
    named: bool

    def evidence(self, column: str) -> tuple[Evidence, ...]:
        """Return the cell of `column` as evidence; () for a row without a number, or an empty cell."""
        cell = self.values[column]
        if self.number is None or cell is None:
            return ()
        return (Evidence(table=self.table, row_id=self.number, field=column, quote=str(cell)),)


@dataclass(frozen=True)
class Condition:
    """A condition on rows of a table: its tests, those of its opposite, and the slots of the phrase that says it."""

    column: str
    tests: tuple[Comparison, ...]
    phrase: str
    value: str
    top: str = ""
    opposite: tuple[Comparison, ...] = ()


class Catalog:
    """All rows of a described database."""

    def __init__(self, description: Description, database: DatabaseRows) -> None:
        self.description = description
        self.database = database
        self.words = wordings(description.lang)
        self.rows = {name: tuple(self._rows(name, table)) for name, table in description.tables.items()}

    def _rows(self, name: str, table: Table) -> Iterator[Row]:
        read = self.database.tables[name]
        cells = [read.cells(column) for column in table.columns]
        names = read.cells(table.name) if table.name else (None,) * len(read.rows)
        counts = Counter(str(text).casefold() for text in names)
        numbers = read.numbers or (None,) * len(read.rows)
        for place, (number, text, *values) in enumerate(zip(numbers, names, *cells, strict=True)):
            shown = str(text)
            named = text is not None and counts[shown.casefold()] == 1 and self._fits(shown)
            by_column = dict(zip(table.columns, values, strict=True))
            yield Row(
                name,
                number,
                (name, str(place if number is None else number)),
                by_column,
                table.name or "",
                shown,
                named,
            )

    @staticmethod
    def _fits(text: str) -> bool:
        plain = text == text.strip() and not re.search(r"[;；:：\n\r\"%_\\]", text)
        return plain and 1 <= len(text) <= _LONGEST and len(split(text)) == 1

    def table(self, name: str) -> Table:
        """Return the description of a table."""
        return self.description.tables[name]

    def column(self, table: str, name: str) -> Column:
        """Return the description of a column."""
        return self.description.tables[table].columns[name]

    def named(self, table: str) -> list[Row]:
        """Return the rows that a question can name."""
        return [row for row in self.rows[table] if row.named]

    def names_in(self, text: str) -> set[str]:
        """Return the names of rows that a text contains."""
        folded = text.casefold()
        return {row.name for rows in self.rows.values() for row in rows if row.named and row.name.casefold() in folded}

    def answer(self, row: Row, column: str) -> list[str]:
        """Return the facts of a cell: the items of a list, yes or no for a flag; [] where no answer can repeat it."""
        cell = row.values[column]
        kind = self.column(row.table, column)
        if cell is None or not str(cell).strip():
            return []
        if kind.kind == "list":
            return self.items(row, column)
        if kind.kind == "flag":
            return [self.words["yes" if is_true(cell) else "no"]]
        text = str(cell)
        fits = text == text.strip() and len(text) <= _LONGEST and not re.search(r"[;；:：\n\r]", text)
        is_time = DATE.fullmatch(text) is not None
        return [text] if fits or is_time else []

    def items(self, row: Row, column: str) -> list[str]:
        """Return the distinct items of a list; [] where an item is too long or splits again."""
        separator = self.column(row.table, column).separator
        parts = dict.fromkeys(part.strip() for part in str(row.values[column] or "").split(separator))
        items = [part for part in parts if part]
        return items if all(self._fits(item) for item in items) else []

    def linked(self, link: Link) -> Iterator[tuple[Row, Row]]:
        """Yield each row with a row to which it refers; with `contains` only the rows that refer to one."""
        (source, column), (target, key) = link.source, link.target
        by_key = {str(row.values[key]): row for row in self.rows[target]}
        for row in self.rows[source]:
            if link.contains:
                cell = str(row.values[column] or "").casefold()
                found = [by_key[item] for item in self.items(row, column) if item in by_key]
                if len(found) == 1 and sum(str(name).casefold() in cell for name in by_key) == 1:
                    yield row, found[0]
            elif (cell_key := str(row.values[column])) in by_key:
                yield row, by_key[cell_key]

    @cache  # noqa: B019  a catalog lives as long as the program makes questions
    def conditions(self, table: str) -> tuple[Condition, ...]:
        """Return the conditions that questions may ask of the rows of `table`."""
        found: list[Condition] = []
        for name, column in self.table(table).columns.items():
            if name != self.table(table).name or column.kind == "name":
                of_column = list(self._conditions_on(table, name, column))
                found += random.Random(name).sample(of_column, min(_MOST_OF_A_COLUMN, len(of_column)))
        return tuple(found)

    def matching(self, table: str, *tests: Comparison) -> list[Row]:
        """Return the rows for which all `tests` hold."""
        places = [self._places(table, test) for test in tests]
        found = sorted(frozenset.intersection(*places)) if places else range(len(self.rows[table]))
        return [self.rows[table][place] for place in found]

    @cache  # noqa: B019
    def _places(self, table: str, test: Comparison) -> frozenset[int]:
        cells = self.database.tables[table].cells(test.column)
        return frozenset(place for place, cell in enumerate(cells) if test.holds(cell))

    def _conditions_on(self, table: str, name: str, column: Column) -> Iterable[Condition]:
        cells = [row.values[name] for row in self.rows[table] if row.values[name] is not None]
        found: Iterable[Condition] = ()
        if column.kind == "category":
            found = _equal(name, cells)
        elif column.kind == "flag" and not is_verb(column.label):
            found = _true(name, cells)
        elif column.kind == "list":
            found = self._with_item(table, name)
        elif column.kind in {"text", "name"}:
            found = self._with_word(table, name, column.kind)
        elif column.kind == "number" and cells:
            found = _ranges(name, cells, column.unit, self.description.lang == "zh")
        elif column.kind == "date" and cells:
            found = _periods(name, cells, self)
        return found

    def _with_item(self, table: str, column: str) -> Iterator[Condition]:
        having: dict[str, int] = Counter(item for row in self.rows[table] for item in self.items(row, column))
        for item, count in _some(having):
            test, opposite = Comparison(column, "LIKE", item), Comparison(column, "NOT LIKE", item)
            if count > 1 and len(self.matching(table, test)) == count:  # no longer item has this one inside
                yield Condition(column, (test,), "list", item, opposite=(opposite,))

    def _with_word(self, table: str, column: str, phrase: str) -> Iterator[Condition]:
        texts = [str(row.values[column]) for row in self.rows[table] if isinstance(row.values[column], str)]
        if phrase == "text" and median([len(text.split()) for text in texts] or [0]) < _PROSE_WORDS:
            return
        having = Counter(word for text in texts for word in {w.casefold() for w in _WORD.findall(text)})
        for word, count in _some({word: count for word, count in having.items() if 2 <= count <= 12}):
            if word in _COMMON:
                continue
            test = Comparison(column, "LIKE", word)
            if len(self.matching(table, test)) == count:  # no longer word has this one inside
                yield Condition(column, (test,), phrase, word, opposite=(Comparison(column, "NOT LIKE", word),))


def _some(having: Mapping[str, int]) -> list[tuple[str, int]]:
    """Return at most `_MOST_SEARCHED` of the items, always the same."""
    items = sorted(having.items())
    return random.Random(len(items)).sample(items, min(_MOST_SEARCHED, len(items)))


def is_true(cell: Cell) -> bool:
    """Return whether the cell of a flag says yes."""
    return str(cell).strip().casefold() in _TRUE


def _equal(column: str, cells: Sequence[Cell]) -> Iterator[Condition]:
    values = Counter(cells)
    folded = Counter(str(value).casefold().strip() for value in values)
    for value in values:
        text = str(value)
        if folded[text.casefold().strip()] == 1 and 0 < len(text) <= _LONGEST and text == text.strip():
            test = Comparison(column, "=", value)
            yield Condition(column, (test,), "category", text, opposite=(Comparison(column, "<>", value),))


def _true(column: str, cells: Sequence[Cell]) -> Iterator[Condition]:
    values = set(cells)
    yes, no = ([value for value in values if is_true(value) is truth] for truth in (True, False))
    if len(yes) == len(no) == 1:
        yield Condition(
            column, (Comparison(column, "=", yes[0]),), "flag", "", opposite=(Comparison(column, "=", no[0]),)
        )


def _ranges(column: str, cells: Sequence[Cell], unit: str, is_chinese: bool) -> Iterator[Condition]:
    """Yield conditions with round limits at places spread over the sorted numbers."""
    numbers = sorted(cell for cell in cells if isinstance(cell, int | float))
    places = max(10, min(40, len(numbers) // 3))
    limits = sorted({_round(numbers[round(place / places * (len(numbers) - 1))]) for place in range(places + 1)})

    def shown(limit: float) -> str:
        return f"{limit}{'' if is_chinese or not unit else ' '}{unit}"

    for low, high in pairwise(limits):
        yield Condition(column, (Comparison(column, ">", low),), "above", shown(low))
        yield Condition(column, (Comparison(column, "<", high),), "below", shown(high))
        yield Condition(
            column, (Comparison(column, ">=", low), Comparison(column, "<=", high)), "between", str(low), shown(high)
        )


def _round(number: float) -> float:
    """Return a number with two significant digits, as an int where it is one."""
    if number == 0 or not math.isfinite(number):
        return 0
    rounded = round(number, 1 - math.floor(math.log10(abs(number))))
    return int(rounded) if rounded == int(rounded) else rounded


def _periods(column: str, cells: Sequence[Cell], catalog: Catalog) -> Iterator[Condition]:
    """Yield conditions on the year of a date; on the month where all dates are of two years."""
    is_chinese = catalog.description.lang == "zh"
    if all(isinstance(cell, int | float) for cell in cells):
        for number in sorted({int(str(cell).partition(".")[0]) for cell in cells}):
            for phrase, operator in _PERIODS:
                shown = f"{number}年" if is_chinese else str(number)
                yield Condition(column, (Comparison(column, operator, number),), phrase, shown)
        return
    months = {str(cell)[:7] for cell in cells if DATE.fullmatch(str(cell))}
    years = {month[:4] for month in months}
    for period in sorted(years if len(years) > 2 else months):
        year, _, month = period.partition("-")
        after = str(int(year) + 1) if not month else f"{int(year) + int(month) // 12}-{int(month) % 12 + 1:02}"
        first, next_first = (f"{period}-01-01", f"{after}-01-01") if not month else (f"{period}-01", f"{after}-01")
        shown = f"{year}年" if is_chinese and not month else year
        if month:
            name = catalog.words["months"][int(month) - 1]
            shown = f"{year}年{name}" if is_chinese else f"{name} {year}"
        yield Condition(column, (Comparison(column, ">=", first), Comparison(column, "<", next_first)), "in", shown)
        yield Condition(column, (Comparison(column, ">=", next_first),), "after", shown)
        yield Condition(column, (Comparison(column, "<", first),), "before", shown)
