"""Keep the texts of a database's columns in memory, to find the columns that contain a text.

A search in memory takes a few milliseconds. The engine would read the whole database, in a tenth of a second.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping

from sql_agent.database.schema import Schema, quoted

MAX_ROWS = 20_000  # maximum for one table
MAX_CHARS = 20_000_000  # maximum for all tables, in equal shares; a table may exceed its share by one page
_PAGE = 1_000  # rows that are read at once
_MOST_FOUND = 1_000  # maximum number of inspected occurrences of a text in a column
BETWEEN = "\0"  # separates the cells of a column, which rarely contain this character

_Column = tuple[str, str]  # a table and its column


class CellTexts:
    """The text cells of each column, in lower case and joined by `BETWEEN`."""

    def __init__(self, columns: Mapping[_Column, str]) -> None:
        self.columns = columns

    def columns_with(self, text: str) -> dict[_Column, int]:
        """Return how often each column that contains `text` does so, the highest count first; case is ignored."""
        counts = {column: cells.count(text.lower()) for column, cells in self.columns.items()}
        return {column: count for column, count in sorted(counts.items(), key=lambda each: -each[1]) if count}

    def beside(self, text: str, column: _Column) -> Iterator[tuple[str, str]]:
        """Yield the letters or digits before and after each of the first occurrences of `text`.

        Any other character is yielded as "".
        """
        cells = self.columns[column]
        at = cells.find(text)
        for _ in range(_MOST_FOUND):
            if at < 0:
                return
            end = at + len(text)
            before, after = cells[max(0, at - 1) : at], cells[end : end + 1]
            yield before if before.isalnum() else "", after if after.isalnum() else ""
            at = cells.find(text, end)


def read_texts(schema: Schema, read: Callable[[str], Iterable[tuple[object, ...]]]) -> CellTexts:
    """Read the first rows of all tables with `read`, which runs a SELECT and returns its rows."""
    found: dict[_Column, str] = {}
    for table, columns in schema.tables:
        page = f"SELECT {', '.join(map(quoted, columns))} FROM {quoted(table)} LIMIT {_PAGE}"
        cells: dict[str, list[str]] = {column: [] for column in columns}
        room = MAX_CHARS // len(schema.tables)
        for start in range(0, MAX_ROWS, _PAGE):
            rows = list(read(f"{page} OFFSET {start}"))
            for column, values in zip(columns, zip(*rows, strict=True), strict=False):
                texts = [value.lower() for value in values if isinstance(value, str) and value]
                cells[column] += texts
                room -= sum(map(len, texts))
            if len(rows) < _PAGE or room < 0:
                break
        found |= {(table, column): BETWEEN.join(texts) for column, texts in cells.items() if texts}
    return CellTexts(found)
