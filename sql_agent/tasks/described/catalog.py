"""Parts of cells, linked rows, and conditions on the columns of a described database, with the rows that meet them."""

from __future__ import annotations

import random
import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import cache, lru_cache
from itertools import takewhile
from statistics import median

from sql_agent.database.schema import fold
from sql_agent.schemas import Cell
from sql_agent.tasks.described.conditions import Condition, equal, periods, ranges, searching, true
from sql_agent.tasks.described.contents import WORD, Contents, Row
from sql_agent.tasks.described.description import Column, Link, Part
from sql_agent.tasks.described.statement import Comparison
from sql_agent.tasks.described.words import is_verb

_MOST_CONDITIONS = 40  # maximum for each column, plus one for every `_ROWS_EACH` rows
_ROWS_EACH = 10
_MOST_SEARCHED = 60  # maximum number of searched words or items of a column, plus one for every `_ROWS_EACH` rows
PROSE_CHARS = 20  # minimum length of prose; shorter texts are values such as addresses
_LONGEST_WORD = 5  # maximum number of characters of a Chinese word in a name
_CODES = 0.9  # minimum share of distinct texts in a column of codes
_MOST_WITH_WORD = 12  # maximum number of rows with a searched word
_MOST_KINDS = 60  # values of a category with more values have long names
_NAME = re.compile(r"[A-Z][A-Za-z]{3,}(?: [A-Z][A-Za-z]+)*")
COMMON = frozenset({"about", "after", "their", "there", "these", "which", "where", "while", "would", "other", "being"})


class Catalog(Contents):
    """The contents of a described database, and which rows meet a condition."""

    def instead(self, table: str, column: str) -> list[tuple[str, Part]]:
        """Return the (column, part) whose items answer questions about `column` if its cell is empty."""
        columns = self.table(table).columns.items()
        return [(name, part) for name, each in columns for part in each.parts.values() if part.instead == column]

    @cache
    def other_rows(self, table: str, column: str) -> list[tuple[Row, Row]]:
        """Return (row, other row that the first one says it is) where only the other row has the cell of `column`."""
        by_name = {row.name: row for row in self.filled_rows(table, column)}
        parts = [
            (c, part)
            for c, of in self.table(table).columns.items()
            for part in of.parts.values()
            if column in part.same_row
        ]
        named = [(row, self.part(row, c, part)) for c, part in parts for row in self.rows_with(table, c, part)]
        return [
            (row, by_name[names[0]])
            for row, names in named
            if len(names) == 1 and names[0] in by_name and row.values[column] is None
            if not any(self.part(row, c, part) for c, part in self.instead(table, column))
        ]

    @cache
    def rows_with(self, table: str, column: str, part: Part) -> list[Row]:
        """Return the rows that a question can name and whose cell of `column` has items of `part`."""
        return [row for row in self.filled_rows(table, column) if self.part(row, column, part)]

    def linked(self, link: Link) -> Iterator[tuple[Row, tuple[Row, ...]]]:
        """Yield each row with the rows to which it refers: one row or, if `link.contains`, all that its text names."""
        (source, column), (target, key) = link.source, link.target
        by_key = {str(row.values[key]): row for row in self.rows[target]}
        by_start: dict[str, list[str]] = {}  # so that a cell is not searched for names whose first character it lacks
        for name in map(str.casefold, by_key):
            by_start.setdefault(name[:1], []).append(name)
        names = "\n".join(by_key).casefold()
        for row in self.rows[source]:
            cell = str(row.values[column])
            if link.contains:
                items = self._items(row, column)
                found = tuple(by_key[item] for item in items if item in by_key)
                # Wordings about one row need a list that names nothing else.
                if found and link.most == 1 and any(str(found[0].values[key]) not in item for item in items):
                    continue
                # People also mean "aspirin", which is no row, if "aspirin tablets" is one.
                if found and any(item not in by_key and _is_inside(item.casefold(), names) for item in items):
                    continue
                # A statement with LIKE must find no other row, such as one whose shorter name is inside.
                said = cell.casefold()
                inside = (name in said for start in {"", *said} for name in by_start.get(start, ()))
                if found and sum(inside) == len(found):
                    yield row, found
            elif cell in by_key:
                yield row, (by_key[cell],)

    @cache
    def conditions(self, table: str, without: str = "") -> tuple[Condition, ...]:
        """Return a sample of the conditions on columns other than `without`; the sample is always the same."""
        columns = self.table(table).columns
        return tuple(each for name in columns if name != without for each in self.conditions_on(table, name))

    @cache
    def conditions_on(self, table: str, name: str) -> list[Condition]:
        """Return a sample of the conditions on a column; the sample is always the same."""
        column = self.column(table, name)
        if name == self.table(table).name and column.kind != "name":
            return []
        found = list(self._all_conditions_on(table, name, column))
        most = _MOST_CONDITIONS + len(self.rows[table]) // _ROWS_EACH
        return random.Random(name).sample(found, min(most, len(found)))

    @cache
    def conditions_by_word(self, table: str) -> dict[tuple[str, str], Condition]:
        """Return the conditions that search for an item or a word, by column and text."""
        return {(c.column, c.value): c for c in self.conditions(table) if c.phrase in {"list", "text", "name"}}

    def matching(self, table: str, *tests: Comparison) -> list[Row]:
        """Return the rows that a SELECT with all `tests` finds."""
        places = [self._places(table, test) for test in tests]
        found = sorted(frozenset.intersection(*places)) if places else range(len(self.rows[table]))
        return [self.rows[table][place] for place in found]

    def meeting(
        self, table: str, *conditions: Condition, without: Condition | None = None, most: int | None = None
    ) -> list[Row]:
        """Return the rows that meet all `conditions` but not `without`; [] if there are more than `most`.

        Return [] also if a SELECT with the tests of the conditions finds other rows, such as rows in which LIKE
        finds the item inside a longer item.
        """
        exact = frozenset.intersection(*(self.places(table, condition) for condition in conditions))
        tests = [test for condition in conditions for test in condition.tests]
        if without is not None:
            exact -= self.places(table, without)
            tests += without.opposite
        if not exact or (most is not None and len(exact) > most):
            return []
        found = self.matching(table, *tests)
        return found if len(exact) == len(found) else []

    def having(self, table: str, condition: Condition) -> list[Row]:
        """Return the rows that meet a condition. In a list, one item must equal the searched item."""
        return [self.rows[table][place] for place in sorted(self.places(table, condition))]

    def places(self, table: str, condition: Condition) -> frozenset[int]:
        """Return the places of the rows that `having` returns."""
        if condition.phrase != "list":
            return frozenset.intersection(*(self._places(table, test) for test in condition.tests))
        return self.places_of(table, condition.column, condition.value)

    @lru_cache(maxsize=20_000)
    def _places(self, table: str, test: Comparison) -> frozenset[int]:
        if test.operator in {"LIKE", "NOT LIKE"}:
            found = frozenset(self._containing(table, test.column, fold(str(test.value))))
            return found if test.operator == "LIKE" else self._joined(table, test.column)[2] - found
        tested = self.database.tables[table].cells(test.column)
        return frozenset(place for place, cell in enumerate(tested) if test.holds(cell))

    def _all_conditions_on(self, table: str, name: str, column: Column) -> Iterable[Condition]:
        kind = column.kind
        cells = [row.values[name] for row in self.rows[table] if row.values[name] is not None]
        found: Iterable[Condition] = ()
        if column.has_vocabulary or (column.words and kind != "name"):
            found = self._with_item(table, name, "text")
        elif kind == "category" or (kind == "text" and _are_short(cells)):
            counts = Counter(cells)
            if kind == "text" and len(counts) < _CODES * len(cells):
                cells = [cell for cell in cells if counts[cell] > 1]  # nobody searches for one cell's sentence
            found = [each for each in equal(name, cells) if not re.search(r"[;；，。（(]", each.value)]
            if kind == "category":
                found += self._with_short_name(table, name)
        elif kind == "flag" and not is_verb(column.label):
            found = true(name, cells)
        elif kind == "list":
            found = self._with_item(table, name, "list")
        elif kind in {"text", "name"}:
            own = [searching(name, word, kind) for word in column.words]
            found = [*own, *self._with_word(table, name, kind)]
        elif kind == "number" and cells:
            counts = Counter(cells)
            same = equal(name, [cell for cell in cells if counts[cell] > 1])  # "aged 18", but no single price
            found = (*ranges(name, cells, column.unit, self.description.lang == "zh"), *same)
        elif kind == "date" and cells:
            found = periods(name, cells, self.description.lang, self.words["months"])
        return found

    def _with_item(self, table: str, column: str, phrase: str) -> Iterator[Condition]:
        for item in self._some(table, self.terms(table, column)):
            yield searching(column, item, phrase)

    def _with_word(self, table: str, column: str, phrase: str) -> Iterator[Condition]:
        texts = [str(row.values[column]) for row in self.rows[table] if isinstance(row.values[column], str)]
        # The Chinese words inside a name are unknown, so whole short names are searched.
        if phrase == "name" and self.description.lang == "zh":
            names = {name for name in texts if len(name) <= _LONGEST_WORD and self.is_searchable(name)}
            having = Counter({name: len(list(self._containing(table, column, fold(name)))) for name in names})
        else:
            having = Counter(word for text in texts for word in {w.casefold() for w in WORD.findall(text)})
        for word in self._some(table, {word: count for word, count in having.items() if 2 <= count <= _MOST_WITH_WORD}):
            condition = searching(column, word, phrase)
            # LIKE must not find an English word inside longer words; a Chinese clause may be a part of another.
            if (
                word not in COMMON
                and self.is_searchable(word)
                and (not word.isascii() or len(self.matching(table, *condition.tests)) == having[word])
            ):
                yield condition

    def _with_short_name(self, table: str, column: str) -> Iterator[Condition]:
        """Yield a condition for each beginning that several values share, such as "Novo Nordisk" of two firms.

        The words of such a beginning are in no other value.
        """
        values = {str(cell) for cell in self.database.tables[table].cells(column) if cell is not None}
        if len(values) <= _MOST_KINDS:
            return
        beginning: defaultdict[str, list[list[str]]] = defaultdict(list)
        users: defaultdict[str, set[str]] = defaultdict(set)  # the first words of the values with a word
        for words in (value.split(" ") for value in sorted(values)):
            beginning[words[0]].append(words)
            for word in words:
                users[word].add(words[0])
        for several in beginning.values():
            shared = takewhile(lambda each: len(set(each)) == len(users[each[0]]) == 1, zip(*several, strict=False))
            condition = searching(column, " ".join(each[0] for each in shared), "category")
            if len(several) > 1 and _NAME.fullmatch(condition.value):
                found = self.matching(table, *condition.tests)
                if all(str(row.values[column]).startswith(condition.value) for row in found):
                    yield condition

    def _some(self, table: str, having: Mapping[str, int]) -> list[str]:
        """Return a sample of the items, always the same.

        The most common ones are up to a third, then random ones of several rows up to two thirds, then any.
        """
        most, chosen = _MOST_SEARCHED + len(self.rows[table]) // _ROWS_EACH, random.Random(len(having))
        common = sorted(having, key=lambda item: (-having[item], item))[: most // 3]
        rare = sorted(having.keys() - common)
        several, single = ([item for item in rare if (having[item] > 1) is wanted] for wanted in (True, False))
        enough = most - len(common) - min(most // 3, len(single))
        found = [*common, *chosen.sample(several, min(enough, len(several)))]
        return [*found, *chosen.sample(single, min(most - len(found), len(single)))]


def _is_inside(item: str, names: str) -> bool:
    """Return whether `names` contain an item; an item of ASCII characters must stand there as a word."""
    pattern = rf"(?<!\w){re.escape(item)}(?!\w)"
    return item in names and (not item.isascii() or re.search(pattern, names) is not None)


def _are_short(cells: Sequence[Cell]) -> bool:
    """Return whether people say whole cells: their median length is below PROSE_CHARS, and none is a float."""
    return (
        not any(isinstance(cell, float) for cell in cells)
        and median([len(str(cell)) for cell in cells] or [0]) < PROSE_CHARS
    )
