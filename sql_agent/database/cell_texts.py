"""Keep the texts of a database's columns in memory, to find the columns that contain a text or parts of a text.

A search in memory takes a few milliseconds. The engine would read the whole database, in a tenth of a second.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping

from sql_agent.database.schema import Schema, quoted

MAX_ROWS = 20_000  # maximum for one table
MAX_CHARS = 20_000_000  # maximum for all tables, in equal shares; a table may exceed its share by one page
_PAGE = 1_000  # rows that are read at once
_MOST_FOUND = 1_000  # maximum number of inspected occurrences of a text in a column
_SHORT = 4  # maximum number of characters of a text that is often a part of other words
_MAX_SEARCHED = 30  # only this many characters of a text are searched for parts; a longer text is a sentence
_MOST_COUNTED = 4  # maximum number of parts whose frequency in cells is counted
_CHINESE = re.compile(r"[\u3400-\u9fff]")
# The units of a Chinese text: numbers and single characters; characters such as 的 belong to no part.
_CHARACTER, _WORD = re.compile(r"\d+|[^\W\d的了是吗呢么些这那哪]"), re.compile(r"\w+")
# What a part must contain: two Chinese characters, or a word of four letters.
_TELLING = re.compile(r"[\u3400-\u9fff].*[\u3400-\u9fff]|[^\W\d_]{4}")
LETTER = "[A-Za-z0-9À-ɏ]"  # a character of a word; Chinese words have no visible ends
_SMALL = re.compile(rf"(?<!{LETTER})[a-z][a-z0-9]{{2,}}(?!{LETTER})")
# Group 2: a word with a capital. Group 1: the punctuation before a word that begins a sentence, line or labelled text.
_CAPITAL = re.compile(rf"((?:[.!?:(\"“‘•\n]|[-–] )\s*)?(?<!{LETTER})([A-Za-z0-9]*[A-Z][A-Za-z0-9]*)(?!{LETTER})")
_END = (".", "!", "?")
BETWEEN = "\0"  # separates the cells of a column, which rarely contain this character

_Column = tuple[str, str]  # a table and its column


class CellTexts:
    """The text cells of each column, in lower case and joined by the separator `BETWEEN`.

    `proper` has the words of ASCII letters and digits, in lower case, that no cell has without a capital, such as
    "pfizer" and "gjb2". A word that only begins sentences, lines or labels is left out. `small` has the words that some
    cell has in lower case.
    """

    def __init__(
        self,
        columns: Mapping[_Column, str],
        proper: frozenset[str] = frozenset(),
        small: frozenset[str] = frozenset(),
    ) -> None:
        self.columns, self.proper, self.small = columns, proper, small

    def columns_with(self, text: str) -> dict[_Column, int]:
        """Return {column: occurrences of `text`} without zeros, the highest count first; case is ignored.

        Up to four ASCII letters are counted only where they are a word, because "EMA" does not mean "oedema".
        """
        key = text.lower()
        counts = {column: cells.count(key) for column, cells in self.columns.items()}
        if len(key) <= _SHORT and key.isascii():
            counts = {column: count_words(key, self.columns[column]) for column, count in counts.items() if count}
        return {column: count for column, count in sorted(counts.items(), key=lambda each: -each[1]) if count}

    def beside(self, text: str, column: _Column) -> Iterator[tuple[str, str]]:
        """Yield the letter or digit before, and that after, each of the first occurrences of `text`.

        A blank between `text` and a letter or digit is yielded as " ", and any other character as "".
        """
        cells = self.columns[column]
        at = cells.find(text)
        for _ in range(_MOST_FOUND):
            if at < 0:
                return
            end = at + len(text)
            yield _nearest(cells[max(0, at - 2) : at][::-1]), _nearest(cells[end : end + 2])
            at = cells.find(text, end)


def count_words(text: str, cells: str) -> int:
    """Return how often `text` occurs in `cells` with no ASCII letter or digit before or after it.

    A lookbehind would stop the search for the literal text, and is much slower.
    """
    found = re.finditer(rf"{re.escape(text)}(?![a-z0-9])", cells)
    before = (cells[max(0, match.start() - 1) : match.start()] for match in found)
    return sum(not (character.isascii() and character.isalnum()) for character in before)


def _nearest(characters: str) -> str:
    """Return what `CellTexts.beside` yields for the two characters next to a text, the nearer one first."""
    nearer, farther = characters[:1], characters[1:]
    return nearer if nearer.isalnum() or (nearer == " " and farther.isalnum()) else ""


def read_texts(schema: Schema, read: Callable[[str], Iterable[tuple[object, ...]]]) -> CellTexts:
    """Read the first rows of all tables with `read`, which runs a SELECT and returns its rows."""
    found: dict[_Column, str] = {}
    capital: set[str] = set()
    small: set[str] = set()  # words in lower case
    for table, columns in schema.tables:
        page = f"SELECT {', '.join(map(quoted, columns))} FROM {quoted(table)} LIMIT {_PAGE}"
        cells: dict[str, list[str]] = {column: [] for column in columns}
        room = MAX_CHARS // len(schema.tables)
        for start in range(0, MAX_ROWS, _PAGE):
            rows = list(read(f"{page} OFFSET {start}"))
            for column, values in zip(columns, zip(*rows, strict=True), strict=False):
                filled = [value for value in values if isinstance(value, str) and value]
                written = BETWEEN.join(f". {value}" if value.endswith(_END) else value for value in filled)
                small.update(_SMALL.findall(written))
                capital.update(word for before, word in _CAPITAL.findall(written) if not before)
                texts = [value.lower() for value in filled]
                cells[column] += texts
                room -= sum(map(len, texts))
            if len(rows) < _PAGE or room < 0:
                break
        found |= {(table, column): BETWEEN.join(texts) for column, texts in cells.items() if texts}
    return CellTexts(found, frozenset(map(str.lower, capital)) - small, frozenset(small))


def longest_parts(text: str, cells: str, beside: str | None = None) -> list[str]:
    """Return the longest parts of `text` that occur in a column's cells, such as "tablets" of "tablets form".

    `cells` are in lower case and joined by `BETWEEN`. If `text` is Chinese, a part has at least two Chinese characters
    or four letters, such as 糖浆 of 糖浆剂型. Otherwise, a part consists of whole words, one of them with at least four
    letters. With `beside`, some of the cells, parts must occur there, and may be shorter. A part that occurs more often
    than once in two cells (a single character: in five) distinguishes nothing and is ignored, and so are characters
    that meet by chance. Among equally long parts, the least probable one comes first.
    """
    key = text.lower() if len(text.lower()) == len(text) else text
    spans = _parts_in_cells(key, cells if beside is None else beside, is_telling=beside is None)
    size, found = cells.count(BETWEEN) + 1, []
    for start, end in sorted(spans, key=lambda part: part[0] - part[1])[:_MOST_COUNTED]:
        part, is_long = key[start:end], end - start > 1
        count = cells.count(part)
        # A Chinese part tells less if its ends are frequent in themselves, any other part if it is frequent itself.
        cuts = [(part[:at], part[at:]) for at in (1, -1)] if is_long and _CHINESE.search(part) else [(part, part)]
        chance = max(cells.count(first) * cells.count(last) for first, last in cuts)
        if 0 < count <= size / (2 if is_long else 5) and chance <= count * len(cells):
            found.append((end - start, count / chance, text[start:end]))
    return [part for _, _, part in sorted(found, key=lambda each: each[:2], reverse=True)]


def _parts_in_cells(key: str, cells: str, *, is_telling: bool) -> Iterator[tuple[int, int]]:
    """Yield start and end of each part of `key` in `cells` that no longer such part contains.

    With `is_telling`, a part must match `_TELLING`.
    """
    unit = _CHARACTER if _CHINESE.search(key) else _WORD
    units = [match.span() for match in unit.finditer(key[:_MAX_SEARCHED])]
    end = 0
    for first, (start, _) in enumerate(units):
        before, end = end, max(end, first)
        while end < len(units) and key[start : units[end][1]] in cells:
            end += 1
        if end > max(before, first) and (not is_telling or _TELLING.search(key[start : units[end - 1][1]])):
            yield start, units[end - 1][1]
