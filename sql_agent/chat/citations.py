"""Cite the cells of query results that contain passages of an answer."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Sequence

from sql_agent.schemas import QueryCall, Record

_SEPARATOR = re.compile(r"\s*(?:[\n;；、，。]|,(?!\d)|[:：.!?](?=\s|$))\s*")
_SHORTEST = 2  # minimum length of a passage; a single letter occurs in most cells
_LATIN = r"[^\W_㐀-鿿]"  # a letter or digit, but no Chinese character


class Citation(Record):
    """A passage of the answer (`text`), and a cell that contains it. `query` and `row` are numbered from 1."""

    text: str
    query: int
    row: int
    column: str


def find_citations(answer: str, question: str, calls: Sequence[QueryCall]) -> tuple[Citation, ...]:
    """Return the passages of `answer` that are in results of `calls`, each with a cell, in the order of the answer.

    A passage is the whole content of a cell, a list item of a cell, or a list item of the answer. Passages that are
    in the question or in a longer passage are left out. If several cells contain a passage, the citation names the
    cell from the query that returned the most passages.
    """
    found: dict[str, list[Citation]] = {}
    items = _items(answer)
    for number, call in enumerate(calls, 1):
        for row, record in enumerate(call.answer.records, 1):
            for column, cell in zip(call.answer.columns, record, strict=True):
                for text in _shared(cell, answer, items):
                    if not _contains(question, text):
                        source = Citation(text=text, query=number, row=row, column=column)
                        found.setdefault(text.casefold(), []).append(source)
    whole = [each for key, each in found.items() if not any(key != other and key in other for other in found)]
    found_in = Counter(query for each in whole for query in {source.query for source in each})
    best = [min(each, key=lambda source: (-found_in[source.query], source.query, source.row)) for each in whole]
    return tuple(sorted(best, key=lambda source: answer.casefold().find(source.text.casefold())))


def _shared(cell: object, answer: str, items: Sequence[str]) -> Iterator[str]:
    """Yield the passages that both `cell` and `answer` contain; `items` are the list items of the answer."""
    if cell is None:
        return
    text = str(cell).strip()
    for item in dict.fromkeys([text, *_items(text)]):
        if (len(item) >= _SHORTEST or not isinstance(cell, str)) and _contains(answer, item):
            yield item
    for item in items:
        if len(item) >= _SHORTEST and _contains(text, item):
            yield item


def _items(text: str) -> list[str]:
    return [part for part in _SEPARATOR.split(text.strip()) if part]


def _contains(text: str, part: str) -> bool:
    """Return whether `text` contains `part` as whole words or numbers, ignoring case."""
    before = rf"(?<!{_LATIN})" if re.match(_LATIN, part) else ""
    after = rf"(?!{_LATIN})" if re.search(rf"{_LATIN}$", part) else ""
    return re.search(before + re.escape(part) + after, text, re.IGNORECASE) is not None
