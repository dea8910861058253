"""The rows of a described database: their names, cells as answers, and the items and words that questions can use."""

from __future__ import annotations

import re
from bisect import bisect_right
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache, cached_property, lru_cache
from itertools import accumulate

from sql_agent.database.name_index import DASH
from sql_agent.database.schema import fold
from sql_agent.reward.judges.items import split
from sql_agent.schemas import Cell, Evidence
from sql_agent.tasks.described.conditions import LONGEST, is_true, sentences_by_age
from sql_agent.tasks.described.description import Column, Description, Part, Table, column_of
from sql_agent.tasks.described.guess_description import DATE
from sql_agent.tasks.described.table_rows import DatabaseRows
from sql_agent.tasks.described.words import wordings

LONGEST_ANSWER = 250  # maximum number of characters of a cell that is an answer
# A word of a text: letters, or a short Chinese clause between punctuation marks.
WORD = re.compile(r"[A-Za-z]{5,}|(?<![\u3400-\u9fff])[\u3400-\u9fff]{2,8}(?![\u3400-\u9fff])")
SENTENCE_END = re.compile(r"[;；。\n]|[.!?](?=\s)")
_LISTED = re.compile(r",? (?:and|or) |[;,] |[；，、]")  # what separates items inside a sentence; "1,000" is one item
_ASKED = re.compile(r"[^.!?;\n]+\?(?=\s|\Z)")  # a heading such as "What causes it?"
_VALUE = re.compile(r"[^\W_]{2,10}|[A-Za-z][A-Za-z '-]{1,40}")  # an item that people search for
_LARGE = 1000  # minimum number of rows of a large table
_FRAME = 120  # number of characters before a word in which its frame is looked for


@dataclass(frozen=True, eq=False)
class Row:
    """A row, its index `place` in the table, and its row key `number`.

    `named` is whether a question can name the row: the name fits into a sentence, and no other row has the same name.
    """

    table: str
    place: int
    number: int | None
    key: tuple[str, str]
    values: Mapping[str, Cell]
    name_column: str
    name: str
    named: bool

    def evidence(self, column: str) -> tuple[Evidence, ...]:
        """Return the cell of `column` as evidence; () if the row has no row key, or the cell is NULL."""
        cell = self.values[column]
        if self.number is None or cell is None:
            return ()
        return (Evidence(table=self.table, row_id=self.number, field=column, quote=str(cell)),)


class Contents:
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
            named = text is not None and counts[shown.casefold()] == 1 and self.fits(shown)
            key = (name, str(place if number is None else number))
            by_column = dict(zip(table.columns, values, strict=True))
            yield Row(name, place, number, key, by_column, table.name or "", shown, named)

    @staticmethod
    @lru_cache(maxsize=200_000)
    def fits(text: str) -> bool:
        """Return whether a question or an answer can repeat a text as one item."""
        plain = text == text.strip() and not re.search(r"[\x00-\x1f\x7f-\x9f;；:：【】\"%_\\]", text)
        return plain and 1 <= len(text) <= LONGEST and len(split(text)) == 1

    def table(self, name: str) -> Table:
        return self.description.tables[name]

    def column(self, table: str, name: str) -> Column:
        return self.description.tables[table].columns[name]

    @cache
    def named(self, table: str) -> list[Row]:
        return [row for row in self.rows[table] if row.named]

    @cache
    def filled_rows(self, table: str, column: str) -> list[Row]:
        """Return the rows that a question can name and whose cell of `column` is not empty."""
        return [row for row in self.named(table) if str(row.values[column] or "").strip()]

    @cache
    def empty_rows(self, table: str, column: str, filled: str | None = None) -> list[Row]:
        """Return the named rows whose cell of `column` is NULL and whose cell of `filled`, if given, is not empty."""
        rows = self.named(table) if filled is None else self.filled_rows(table, filled)
        return [row for row in rows if row.values[column] is None]

    @cache
    def all_names(self, table: str) -> str:
        """Return the names of all rows, one a line, in lower case."""
        return "\n".join(row.name for row in self.rows[table]).casefold()

    @cache
    def is_known(self, text: str) -> bool:
        """Return whether a cell of a described column contains a text."""
        part = fold(text)
        return any(part in cells for cells in self._texts)

    @cached_property
    def names(self) -> frozenset[str]:
        return frozenset().union(*map(self.names_of, self.rows))

    @cache
    def names_of(self, table: str) -> frozenset[str]:
        return frozenset(row.name for row in self.rows[table])

    @cache
    def needs_no_label(self, value: str) -> bool:
        """Return whether `value` is searchable and is the whole of a cell in exactly one described column."""
        cell = f"\0{fold(value)}\0"
        return self.is_searchable(value) and sum(cell in f"\0{cells}\0" for cells in self._texts) == 1

    def names_in(self, text: str) -> set[str]:
        folded = text.casefold()
        return {row.name for rows in self.rows.values() for row in rows if row.named and row.name.casefold() in folded}

    def fact(self, name: str, items: Iterable[str]) -> str:
        """Return the fact that a row has several items: "name: item, item"."""
        return f"{name}{self.words['colon']}{self.words['comma'].join(items)}"

    def facts(self, row: Row, column: str, part: Part | None = None) -> list[str]:
        """Return the facts of a cell or of a part of it, such as yes for a flag; [] if an answer cannot repeat them.

        A cell that is only parts with patterns, such as "Also called ...", has no facts besides these parts.
        """
        if part is not None:
            return self.part(row, column, part)
        cell, described = row.values[column], self.column(row.table, column)
        text = "" if cell is None else str(cell).strip()
        if not text:
            return []
        if described.kind == "flag":
            return [self.words["yes" if is_true(cell) else "no"]]
        if described.kind in {"list", "text"}:
            facts = self.sentences(row, column) if len(text) <= LONGEST_ANSWER else []
            patterns = [each.pattern for each in described.parts.values() if each.pattern]
            return [] if all(any(re.fullmatch(pattern, fact) for pattern in patterns) for fact in facts) else facts
        fits = len(text) <= LONGEST and not re.search(r"[;；:：\n\r]", text)
        return [text] if fits or DATE.fullmatch(text) else []

    def sentences(self, row: Row, column: str) -> list[str]:
        """Return the distinct sentences of a text, or of the items of a list."""
        texts = (_ASKED.sub("", piece) for piece in self._pieces(row, column))
        pieces = [part for text in texts for part in SENTENCE_END.split(text)]
        return _distinct(piece.strip().rstrip(".").strip() for piece in pieces)

    def _items(self, row: Row, column: str) -> list[str]:
        return _distinct(piece.strip().rstrip("。") for piece in self._pieces(row, column))

    def _pieces(self, row: Row, column: str) -> list[str]:
        text, described = str(row.values[column] or ""), self.column(row.table, column)
        return text.split(described.separator) if described.kind == "list" else [text]

    def words_of(self, row: Row, column: str) -> list[str]:
        """Return the search terms of a cell: a list's items, or a text's words (those of its vocabulary, if any)."""
        described = self.column(row.table, column)
        if described.words:
            return [word for word in described.words if fold(word) in fold(str(row.values[column]))]
        if described.has_vocabulary:
            return self._vocabulary_by_place(row.table, column).get(row.place, [])
        if described.kind == "list":
            return self._items(row, column)
        return _distinct(WORD.findall(str(row.values[column] or "")))

    def is_searchable(self, word: str) -> bool:
        """Return whether `word` has the form of an item or a word that people search for."""
        return _VALUE.fullmatch(word) is not None and word not in self.words["nothing"]

    @cache
    def terms(self, table: str, column: str) -> Mapping[str, int]:
        """Return {search term: number of rows} for a list, or for a column with `words` or a vocabulary.

        A term of `words` or a vocabulary must be in at least two rows. An item of any other list must be the name of a
        row or be in at least two rows (three in a large table, one fewer if several columns have it), be no clause and
        no single letter, and have no digit.
        """
        described = self.column(table, column)
        found = {
            item: len(places)
            for item, places in self.places_by_item(table, column).items()
            if self.is_searchable(item) and not any(part in item for part in described.unsaid)
        }
        if described.has_vocabulary or described.words:
            return {word: count for word, count in found.items() if count > 1}
        least = 2 if len(self.rows[table]) < _LARGE else 3
        return {
            item: count
            for item, count in found.items()
            if len(item) > 1
            and (item in self.names or count >= least - (self._columns_of_items()[item] > 1))
            and not self._clause.search(item)
            and not any(map(str.isdigit, item))
        }

    @cached_property
    def _clause(self) -> re.Pattern[str]:
        """The pattern of a clause, by words at its start, inside or at its end."""
        starts, inside, ends = ("|".join(self.words[f"clause_{place}"]) for place in ("starts", "words", "ends"))
        return re.compile(f"^(?:{starts})|{inside}|(?:{ends})$")

    @cache
    def _vocabulary_by_place(self, table: str, column: str) -> dict[int, list[str]]:
        found: dict[int, list[str]] = {}
        for word, places in self.places_by_item(table, column).items():
            for place in places:
                found.setdefault(place, []).append(word)
        return found

    def part(self, row: Row, column: str, part: Part) -> list[str]:
        """Return the items or sentences of a cell that belong to `part`.

        If `part` has words, return [] when all items belong to `part`, unless they answer for another column, when any
        other item is unclear, or when the answer would be longer than LONGEST_ANSWER.
        """
        cell, is_list = fold(str(row.values[column])), self.column(row.table, column).kind == "list"
        words, unclear = ([word for word in each if word in cell] for each in (part.words, part.unclear))
        if part.words and not words:
            return []
        items = self._items(row, column) if is_list else self.sentences(row, column)
        if part.pattern:
            found = _distinct(re.findall(part.pattern, str(row.values[column] or "")))
            items = _distinct(map(str.strip, _LISTED.split(found[0]))) if len(found) == 1 else []
            items = [item for item in items if fold(item) != fold(row.name)]
        if part.splits:
            items = _distinct(p.strip() for item in items for p in re.split(f"[{re.escape(part.splits)}]", item))
        if part.label:
            items = labelled(items, part.label)
        if (part.label or part.pattern) and not part.words:
            return items
        if part.ages and not sentences_by_age(items):
            return []
        folded = {item: fold(item) for item in items}
        longer = [each for each in unclear if any(word in each for word in words)]
        rest = {item: without_words(text, longer) for item, text in folded.items()}
        inside = [item for item in items if any(word in rest[item] for word in words)]
        others = folded.keys() - inside
        if not (others or part.instead) or sum(map(len, inside)) > LONGEST_ANSWER:
            return []
        return [] if any(word in folded[item] for item in others for word in unclear) else inside

    def places_of(self, table: str, column: str, item: str) -> frozenset[int]:
        """Return the places of the rows whose cell of a list has an item, or of a text a searched word."""
        return self.places_by_item(table, column).get(item, frozenset())

    @cache
    def places_by_item(self, table: str, column: str) -> dict[str, frozenset[int]]:
        """Return a map from each item or searched word of a column to the places of the rows that have it."""
        described = self.column(table, column)
        if described.has_vocabulary:
            sources = [column_of(name, table) for name in described.vocabulary]
            words = {word for source in sources for word in self._words_of_column(*source)}
            if described.kind == "text":
                cells = self._cells(table, column)
                found = {word for cell in cells for word in re.findall(described.pattern or "(?!)", cell)}
                words = {word for word in words if self._is_framed(table, column, fold(word))} | found
                words = {word for word in words if self._stands_alone(table, column, fold(word))}
            return {word: frozenset(self._containing(table, column, fold(word))) for word in sorted(words)}
        places: dict[str, list[int]] = {}
        for row in self.rows[table]:
            for item in self.words_of(row, column):
                places.setdefault(item, []).append(row.place)
        return {item: frozenset(found) for item, found in places.items()}

    def _words_of_column(self, table: str, column: str) -> Iterable[str]:
        if column == self.table(table).name:
            return [row.name for row in self.named(table) if self.is_searchable(row.name)]
        return self.terms(table, column)

    @cached_property
    def _texts(self) -> list[str]:
        """The cells of each described column as one text in lower case, separated by NUL."""
        tables = self.description.tables.items()
        return [self._joined(table, name)[0] for table, described in tables for name in described.columns]

    @cache
    def _joined(self, table: str, column: str) -> tuple[str, list[int], frozenset[int]]:
        """Return a column's cells as one text, each cell's offset in this text, and the places of non-NULL cells."""
        cells = self.database.tables[table].cells(column)
        texts = ["" if cell is None else fold(str(cell)) for cell in cells]
        begins = list(accumulate((len(text) + 1 for text in texts), initial=0))
        return "\0".join(texts), begins, frozenset(place for place, cell in enumerate(cells) if cell is not None)

    def _containing(self, table: str, column: str, part: str) -> Iterator[int]:
        """Yield the places of the cells that contain a text. One search in all cells is faster than one in each."""
        text, begins, _ = self._joined(table, column)
        start = text.find(part)
        while start >= 0:
            place = bisect_right(begins, start) - 1
            yield place
            start = text.find(part, begins[place + 1])

    def _stands_alone(self, table: str, column: str, part: str) -> bool:
        """Return whether no cell of a column has the text `part` inside a longer word, as "skin" has "ski".

        A text that other cells have with other dashes does not stand alone: LIKE finds "restless legs" only in part.
        """
        text = self._joined(table, column)[0]
        for start in _starts(text, part):
            if text[max(0, start - 1) : start].isalnum() or text[start + len(part) : start + len(part) + 1].isalnum():
                return False
        return self._without_dashes(table, column).count(_without_dashes(part)) == text.count(part)

    @cache
    def _without_dashes(self, table: str, column: str) -> str:
        return _without_dashes(self._joined(table, column)[0])

    def _is_framed(self, table: str, column: str, part: str) -> bool:
        """Return whether the column's `frame`, if any, is before each occurrence of `part`."""
        frame = self.column(table, column).frame
        if not frame:
            return True
        text, ends = self._joined(table, column)[0], re.compile(f"(?:{frame})$", re.IGNORECASE)
        cells = ((start, text.rfind("\0", 0, start) + 1) for start in _starts(text, part))
        return all(ends.search(text, max(cell, start - _FRAME), start) for start, cell in cells)

    def _cells(self, table: str, column: str) -> Iterator[str]:
        """Yield the cells of a column as texts, "" for an empty one."""
        return ("" if cell is None else str(cell) for cell in self.database.tables[table].cells(column))

    @cache
    def cells_with(self, table: str, column: str, part: str) -> int:
        """Return the number of cells of a column that contain a text."""
        return sum(1 for _ in self._containing(table, column, fold(part)))

    @cache
    def _columns_of_items(self) -> Counter[str]:
        """Return in how many lists each item is."""
        found: Counter[str] = Counter()
        for name, table in self.description.tables.items():
            for column, described in table.columns.items():
                if described.kind == "list" and not described.vocabulary:
                    found.update(self.places_by_item(name, column).keys())
        return found


def _starts(text: str, part: str) -> Iterator[int]:
    start = text.find(part)
    while start >= 0:
        yield start
        start = text.find(part, start + 1)


def _without_dashes(text: str) -> str:
    return DASH.sub("-", text).replace("-", " ")


def without_words(text: str, words: Iterable[str]) -> str:
    """Return `text` with a blank in place of each of `words`, the longest words first."""
    for word in sorted(words, key=len, reverse=True):
        text = text.replace(word, " ")
    return text


def _distinct(texts: Iterable[str]) -> list[str]:
    """Return the distinct texts that are not empty, in order."""
    return list(dict.fromkeys(filter(None, texts)))


def labelled(items: Sequence[str], label: str) -> list[str]:
    """Return the items after a label inside a list: "b", "c" of "x: a; label: b; c"."""
    starts = [place for place, item in enumerate(items) if item.startswith(label)]
    if len(starts) != 1:
        return []
    first, *rest = items[starts[0] :]
    after = next((place for place, item in enumerate(rest) if re.search("[:：]", item)), len(rest))
    return [first.removeprefix(label).strip(), *rest[:after]]
