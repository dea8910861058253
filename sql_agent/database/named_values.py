"""Find the values of a database that a question names, so that a model can copy them into its statement.

A value is the name or alias of a row, which may be misspelt, or a word of text cells. A cell such as "a; b" has the
items "a" and "b"; a word is an item or a part of items. Chinese has no blanks, so every part of a question is looked
up; of overlapping parts, the longest name or item counts.
"""

from __future__ import annotations

import re
import sys
from bisect import bisect_left, bisect_right
from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import chain, groupby, islice
from typing import Literal

import numpy as np
from rapidfuzz.distance import OSA

from sql_agent.database.cell_texts import BETWEEN, CellTexts
from sql_agent.database.name_index import Name, NameIndex, comparable, is_word
from sql_agent.schemas import Record

MAX_VALUES = 8  # maximum for one question
_MAX_TEXT = 600  # maximum number of searched characters of a question
_MAX_COLUMNS = 4  # maximum number of columns for one value
_MAX_OF_TABLE = 2  # maximum number of these columns from one table
_MAX_ROWS = 3  # maximum number of rows for one name
_MAX_ITEMS = 300_000  # maximum number of items in memory
_MAX_ITEM_CHARS = 40
_MAX_CUT_CHARS = 8  # maximum length of an item that is also found by all but its first or last character
_MIN_PART_CHARS = 3  # minimum length of the beginning of a name
_MIN_MIDDLE_CHARS = 4  # minimum length of another part of a name
_FEW = 3  # a part from the middle of more names is too common
_MIN_MISSPELT_CHARS = 4
_MIN_KIND = 20  # minimum number of names that end with a word that may be left out
_TYPO_EVERY = 4  # one typing error is tolerated for every four characters
_MOST_SIMILAR = 50  # maximum number of names whose edit distance to a question is computed
_SEVERAL = 3  # minimum number of names with a word that make the word a term
_ITEM_SHARE = 0.005  # minimum share of a term's occurrences that are whole items
# A term that is never an item occurs 5 - len(term) to 20 times. A more frequent word, such as 少量, is no term.
_MIN_OCCURRENCES, _MOST_OCCURRENCES = 5, 20
# A column of prose has at least 100 cells, with ten words in the mean. Only its first characters are inspected.
_MIN_CELLS, _PROSE_WORDS, _MOST_INSPECTED = 100, 10, 300_000
_COMMON_CELLS = 0.05  # minimum share of a column's cells that have a common word
_COMMON_COLUMNS = 6  # a common word is in so many cells of at least one of six columns of prose
_COMMON_ITEMS = 0.2  # maximum share of these cells that have the word as an item of a list
_SINGLE_SHARE = 0.9  # minimum share of one-item cells in a column of single values
_SEPARATOR = re.compile(r"\s*[；;、，,。：:|/（）()\n]+\s*")
_QUOTED = re.compile(r"[“\"「『](\S.{0,30}?\S)[”\"」』]")
_LATIN, _WORD = re.compile(r"[a-z]+"), re.compile(r"\w+")
_NUMBER = re.compile(r"[\d\s.,%-]+")

_Column = tuple[str, str]


class NamedValue(Record):
    """A value and the columns that contain it; `operator` is `LIKE` if `value` is a pattern. `str()` is a condition."""

    columns: tuple[_Column, ...]
    operator: Literal["=", "LIKE"]
    value: str

    def __str__(self) -> str:
        literal = self.value.replace("'", "''")
        return f"{', '.join('.'.join(column) for column in self.columns)} {self.operator} '{literal}'"


@dataclass(frozen=True, slots=True)
class _Span:
    """A part of the question and the values that the part names.

    `word` is the part itself if it is a word of text cells, else ""; the columns with `word` are looked up last.
    `is_name` is whether the part names a row or belongs to several names. `is_whole` is whether the part names a row,
    is a whole item of a cell, is in quotation marks, or is at least four characters of a name.
    """

    start: int
    end: int
    values: tuple[NamedValue, ...]
    word: str = ""
    is_name: bool = False
    is_whole: bool = True


class ValueIndex:
    """An index of the row names and the items of text cells of one database."""

    def __init__(self, names: NameIndex, texts: CellTexts) -> None:
        self._names = names
        self._keys = sorted(names.keys)
        self._long = [key for key in self._keys if len(key) > _MAX_ITEM_CHARS]
        last_words = Counter(key.rpartition(" ")[2] for key in self._keys if key.isascii())
        self._kinds = {word for word, count in last_words.items() if count >= _MIN_KIND}  # such as "syndrome"
        # Pairs of an end of a name and the name, to look up parts from the middle of names.
        self._ends = sorted(
            (key[start:], key)
            for key in self._keys
            for start in range(1, len(key) - _MIN_MIDDLE_CHARS + 1)
            if key[start].isalnum() and is_word(key, start, len(key))
        )
        self._name_columns = {(row.table, row.column) for key in self._keys for row in names.rows(key)}
        self._columns = list(texts.columns)
        # Maps the number of a column with single values to the items that are whole cells.
        self._single: dict[int, frozenset[str]] = {}
        self._items = self._read_items(texts)
        short = [item for item in self._items if 3 <= len(item) <= _MAX_CUT_CHARS and self._is_text(item)]
        self._cut_items = {cut for item in short for cut in (item[:-1], item[1:])}
        self._texts = texts
        self._common = _common_words(
            cells for column, cells in texts.columns.items() if column not in self._name_columns
        )
        self._columns_with = lru_cache(maxsize=10_000)(texts.columns_with)
        self._terms: dict[str, bool] = {}
        with_pair: dict[str, list[int]] = defaultdict(list)
        for number, key in enumerate(self._keys):
            if len(key) >= _MIN_MISSPELT_CHARS:
                # An error in the middle of four characters leaves one pair: pairs around a character are added.
                for pair in {*_pairs(key), *(_pairs(key, 2) if len(key) == _MIN_MISSPELT_CHARS else ())}:
                    with_pair[pair].append(number)
        self._with_pair = {pair: np.array(numbers, dtype=np.intp) for pair, numbers in with_pair.items()}
        lengths = np.array([len(key) for key in self._keys], dtype=np.intp)
        # The least number of pairs that a misspelt name shares with a text; an error changes at most two pairs.
        self._least_pairs = np.maximum(2, lengths - 1 - 2 * (lengths // _TYPO_EVERY))

    def named_in(self, question: str) -> list[NamedValue]:
        """Return at most `MAX_VALUES` values that `question` names, in the order of the question."""
        text = comparable(question[:_MAX_TEXT])
        long = ((text.find(key), len(key)) for key in self._long)
        places = chain(_words(text), ((at, at + size) for at, size in long if at >= 0 and is_word(text, at, at + size)))
        exact = [span for start, end in places for span in self._exact(text, start, end)]
        spans = [*exact, *self._misspelt(text, exact), *self._quoted(text)]
        taken: list[_Span] = []  # also items that are no terms, so that an overlapping part such as 病治疗 is left out
        shown: list[_Span] = []
        for span in sorted(spans, key=lambda span: (not span.is_whole, span.start - span.end, not span.is_name)):
            if all(span.end <= other.start or other.end <= span.start for other in taken):
                is_shown = bool(span.values) or self._is_term(span.word)
                taken += [span] if is_shown or self._is_text(span.word) else []
                shown += [span] if is_shown else []
        last_first = sorted(shown, key=lambda span: -span.start)
        first = {(span.values, span.word): span for span in last_first}  # one of equal spans
        best = sorted(first.values(), key=lambda span: (not span.is_name, span.start - span.end))[:MAX_VALUES]
        ordered = sorted(best, key=lambda span: span.start)
        values = (value for span in ordered for value in (*span.values, *self._with_word(span.word, span.values)))
        return best_values(list(dict.fromkeys(values)), MAX_VALUES)

    def _exact(self, text: str, start: int, end: int) -> Iterator[_Span]:
        """Yield text[start:end] as one span if it is a word or names rows, and as another if it is a part of names."""
        part = text[start:end]
        rows = self._rows(part)
        are_common = all(word in self._common for word in _WORD.findall(part))  # such as "the head and"
        if are_common and all(comparable(row.text) != part for row in rows):
            return
        begun = self._begun(part) if not rows else ()
        # A word before a common end of names is a piece of an unknown name, such as 定痛 in 舒络定痛颗粒.
        word = part if self._is_word(part) and (rows or not text.startswith(self._names.ends, end)) else ""
        is_name, is_text = bool(rows) or len(begun) > 1, self._is_text(word)
        is_whole = bool(rows) or is_text or (bool(begun) and len(part) >= _MIN_MIDDLE_CHARS)
        is_proper = part in self._texts.proper
        if rows or (word and not (begun and is_proper)):
            yield _Span(start, end, tuple(_whole(rows)), word, is_name, is_whole)
        if begun and not is_text:
            columns = tuple(dict.fromkeys((row.table, row.column) for row in begun))
            values = [NamedValue(columns=columns, operator="LIKE", value=f"%{part}%")]
            only = begun[0].text.lower() if len(begun) == 1 else ""
            if only.startswith(f"{part} ") and only[len(part) + 1 :] in self._kinds:
                values = _whole(begun)
            yield _Span(start, end, tuple(values), word if is_proper else "", is_name, is_whole)

    def _is_spelt(self, part: str, key: str) -> bool:
        """Return whether cells have all words of `part` in lower case, as they have "made": it is no misspelt MADD.

        Words that are those of `key` with other blanks and dashes are a spelling of `key`.
        """
        words = _WORD.findall(part)
        spelt = all(word in self._texts.small for word in words if len(word) > 2)  # it has no shorter words
        return part.isascii() and spelt and words != _WORD.findall(key)

    def _quoted(self, text: str) -> Iterator[_Span]:
        """Yield a span for each part in quotation marks, with the columns whose cells contain the part."""
        for match in _QUOTED.finditer(text):
            if columns := _few(self._columns_with(match[1])):
                value = NamedValue(columns=columns, operator="LIKE", value=f"%{match[1]}%")
                yield _Span(*match.span(1), (value,))

    def _rows(self, key: str) -> Sequence[Name]:
        """Return the rows with the name `key`, else the rows with the alias `key`."""
        rows = self._names.rows(key)
        return [row for row in rows if comparable(row.text) == key] or rows

    def _is_text(self, item: str) -> bool:
        """Return whether `item` is an item of a column that does not name rows."""
        return any(self._columns[number] not in self._name_columns for number in self._items.get(item, ()))

    def _is_word(self, part: str) -> bool:
        """Return whether `part` is a proper name, an item of a text, or an item less its first or last character."""
        if _NUMBER.fullmatch(part):
            return False
        if part in self._texts.proper:
            return True
        return self._is_text(part) or (part in self._cut_items and part not in self._items and part.isalnum())

    def _is_term(self, word: str) -> bool:
        """Return whether `word` is a proper name, or a term by its occurrences; the result is kept."""
        if word not in self._terms:
            self._terms[word] = word in self._texts.proper or self._stands_as_term(word)
        return self._terms[word]

    def _stands_as_term(self, word: str) -> bool:
        """Return whether `word` occurs as a term: as an item, in several names, or beside varied words."""
        columns = [column for column in self._columns if column not in self._name_columns]
        near = [pair for column in columns for pair in self._texts.beside(word, column)]
        whole = sum(before + after == "" for before, after in near)
        names = sum(count for column, count in self._columns_with(word).items() if column in self._name_columns)
        if whole or names >= _SEVERAL:
            return max(whole, 1) >= _ITEM_SHARE * len(near)
        kinds = (
            len(set(filter(str.strip, side))) + sum(not each.strip() for each in side)
            for side in zip(*near, strict=True)
        )
        return max(2, _MIN_OCCURRENCES - len(word)) <= len(near) <= min(_MOST_OCCURRENCES, min(kinds, default=0) ** 2)

    def _with_word(self, word: str, values: Sequence[NamedValue]) -> Iterator[NamedValue]:
        """Yield a value for the columns with `word` as a whole cell, and one for the columns with `word` inside cells.

        `values` are named by the same part.
        Columns with the word as an item come first, and columns with the word in the names of several rows come last.
        """
        numbers = self._items.get(word, ())
        items = {self._columns[number] for number in numbers}
        counts = self._columns_with(word) if word else {}
        # Sentences about a row repeat the row's name, so for the name of a row only items count.
        is_row = any(value.operator == "=" for value in values)
        found = [column for column in counts if column not in self._name_columns and (not is_row or column in items)]
        shown = _few(found, items)
        known = {column for value in values for column in value.columns}
        shown += tuple(c for c in counts if c in self._name_columns - known and counts[c] >= _SEVERAL)
        single = {self._columns[number] for number in numbers if word in self._single.get(number, ())}
        for pattern, whole in ((word, True), (f"%{word}%", False)):
            if having := tuple(column for column in shown if (column in single) is whole):
                yield NamedValue(columns=having, operator="LIKE", value=pattern)

    def _begun(self, part: str) -> Sequence[Name]:
        """Return the rows whose name begins with `part`, else those whose name contains `part` if they are few."""
        if len(part) < _MIN_PART_CHARS or not part[-1].isalnum():
            return ()
        first, last = bisect_left(self._keys, part), bisect_right(self._keys, part + chr(sys.maxunicode))
        begun = [key for key in self._keys[first:last] if is_word(key, 0, len(part))] or self._in_few(part)
        rows = dict.fromkeys(row for key in begun for row in self._names.rows(key))
        return [row for row in rows if part in row.text.lower()]  # LIKE searches no alias

    def _in_few(self, part: str) -> list[str]:
        """Return the names that contain `part` after their beginning; [] if they are more than `_FEW`."""
        if len(part) < _MIN_MIDDLE_CHARS:
            return []
        first = bisect_left(self._ends, (part,))
        last = bisect_right(self._ends, (part + chr(sys.maxunicode),))
        found = list(islice((key for end, key in self._ends[first:last] if is_word(end, 0, len(part))), _FEW + 1))
        return found if len(found) <= _FEW else []

    def _misspelt(self, text: str, exact: Sequence[_Span]) -> Iterator[_Span]:
        """Yield the parts of the text that misspell a name, except parts that an exact name mostly covers."""
        pairs = {*_pairs(text), *_pairs(text, 2)}
        sharing = [self._with_pair[pair] for pair in pairs if pair in self._with_pair]
        shared = np.bincount(np.concatenate(sharing or [np.zeros(0, np.intp)]), minlength=len(self._keys))
        numbers = np.flatnonzero(shared >= self._least_pairs)
        near = [(-shared[number] / len(self._keys[number]), self._keys[number]) for number in numbers]
        similar: dict[tuple[int, int, int], list[Name]] = defaultdict(list)  # keyed by distance, start and end
        for _, key in sorted(near)[:_MOST_SIMILAR]:
            distance, start, end = min(_windows(text, key), default=(0, 0, 0))
            known = (min(end, other.end) - max(start, other.start) for other in exact if other.is_name)
            if distance and max(known, default=0) < len(key) - 1 and not self._is_spelt(text[start:end], key):
                similar[distance, start, end] += self._rows(key)
        for (_, start, end), rows in sorted(similar.items()):
            word = text[start:end] if self._is_text(text[start:end]) else ""
            yield _Span(start, end, tuple(_whole(rows)), word, is_name=True)

    def _read_items(self, texts: CellTexts) -> dict[str, tuple[int, ...]]:
        """Return for each list item the columns that contain it, by number: the column with most cells of it first.

        For each column whose cells mostly have one item, `_single` gets the items that no longer list contains.
        """
        counts: dict[str, dict[int, int]] = {}
        for number, cells in enumerate(texts.columns.values()):
            found: Counter[str] = Counter()
            listed = [[item for item in _SEPARATOR.split(cell) if item] for cell in cells.split(BETWEEN)]
            for items in listed:
                found.update(item for item in items if len(item) <= _MAX_ITEM_CHARS)
            if sum(len(items) == 1 for items in listed) >= _SINGLE_SHARE * len(listed):
                parts = {item for items in listed if len(items) > 1 for item in items}
                self._single[number] = frozenset(found.keys() - parts)
            for item, count in found.items():
                # LIKE compares with the cell as it is, so an item that `comparable` changes cannot be shown.
                if comparable(item) == item and (len(counts) < _MAX_ITEMS or item in counts):
                    counts.setdefault(item, {})[number] = count
        kept: dict[tuple[int, ...], tuple[int, ...]] = {}  # one object for equal tuples
        ordered = ((item, tuple(sorted(of, key=lambda number: -of[number]))) for item, of in counts.items())
        return {item: kept.setdefault(columns, columns) for item, columns in ordered}


def best_values(values: Sequence[NamedValue], most: int) -> list[NamedValue]:
    """Return the best `most` of `values` in their order: names of rows are the best, then long texts."""
    best = sorted(values, key=lambda value: (value.operator != "=", -len(value.value)))[:most]
    return [value for value in values if value in best]


def _common_words(columns: Iterable[str]) -> frozenset[str]:
    """Return the common words of prose, such as "what". A frequent item of lists, such as "headache", is none.

    Each of `columns` is its cells joined by `BETWEEN`.
    """
    prose = 0
    columns_with: Counter[str] = Counter()
    for joined in columns:
        cells = joined[:_MOST_INSPECTED].split(BETWEEN)
        words = [_LATIN.findall(cell) for cell in cells]
        if len(cells) < _MIN_CELLS or sum(map(len, words)) < _PROSE_WORDS * len(cells):
            continue
        prose += 1
        counts = Counter(word for of_cell in words for word in set(of_cell))
        items = Counter(item for cell in cells for item in set(_SEPARATOR.split(cell)))
        columns_with.update(
            word
            for word, count in counts.items()
            if count >= _COMMON_CELLS * len(cells) and items[word] < _COMMON_ITEMS * count
        )
    return frozenset(word for word, count in columns_with.items() if count * _COMMON_COLUMNS >= prose)


def _few(columns: Iterable[_Column], items: Collection[_Column] = ()) -> tuple[_Column, ...]:
    """Return at most four columns, first the columns that are in `items`.

    Of each table, only the first two columns and the columns in `items` are returned.
    """
    ordered = sorted(columns, key=lambda column: column not in items)
    rank = {column: [table for table, _ in ordered[:at]].count(column[0]) for at, column in enumerate(ordered)}
    few = [column for column in ordered if column in items or rank[column] < _MAX_OF_TABLE]
    return tuple(sorted(few, key=lambda column: (column not in items, rank[column] >= _MAX_OF_TABLE))[:_MAX_COLUMNS])


def _whole(rows: Sequence[Name]) -> list[NamedValue]:
    """Return a value for each different name of the first three rows, with the columns of the rows of this name."""
    ordered = sorted(rows[:_MAX_ROWS], key=lambda row: row.text)
    return [
        NamedValue(columns=tuple((row.table, row.column) for row in group), operator="=", value=text)
        for text, group in groupby(ordered, key=lambda row: row.text)
    ]


def _words(text: str) -> Iterator[tuple[int, int]]:
    """Yield the start and end of each part of the text that does not cut an alphabetic word in two."""
    for start in range(len(text)):
        for end in range(start + 2, min(len(text), start + _MAX_ITEM_CHARS) + 1):
            if is_word(text, start, end) and not text[start].isspace() and not text[end - 1].isspace():
                yield start, end


def _windows(text: str, key: str) -> Iterator[tuple[int, int, int]]:
    """Yield the edit distance, start and end of each part of the text that may be a misspelt `key`.

    The first character must be right: 的综合征 is not a misspelt X综合征.
    """
    allowed = len(key) // _TYPO_EVERY
    start = text.find(key[0])
    while start >= 0:
        for end in range(start + len(key) - 1, min(len(text), start + len(key) + 1) + 1):
            part = text[start:end]
            distance = OSA.distance(part, key, score_cutoff=allowed)
            has_letters = all(char.isalpha() or char in key for char in part)
            if len(part) < _MIN_MISSPELT_CHARS and not key.startswith(part):
                continue  # 酸中毒 is not a misspelt 酸碱中毒
            if distance <= allowed and has_letters and is_word(text, start, end) and not part[-1].isspace():
                yield distance, start, end
        start = text.find(key[0], start + 1)


def _pairs(text: str, apart: int = 1) -> Iterator[str]:
    return (first + second for first, second in zip(text, text[apart:], strict=False))
