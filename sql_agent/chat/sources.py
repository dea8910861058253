"""Find which rows hold the answer: texts that stand both in the answer and in a cell that a query returned."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Sequence

from sql_agent.schemas import QueryCall, Record

_SEPARATOR = re.compile(r"\s*(?:[\n;；、，。]|,(?!\d)|[:：.!?](?=\s|$))\s*")
_SHORTEST = 2  # characters; a single letter stands in nearly any cell
_LATIN = r"[^\W_㐀-鿿]"  # a letter or digit of a script that writes spaces between words


class AnswerSource(Record):
    """One text of the answer and a cell that holds it: query and row are counted from 1."""

    text: str
    query: int
    row: int
    column: str


def sources_of(answer: str, question: str, calls: Sequence[QueryCall]) -> tuple[AnswerSource, ...]:
    """Return the texts of `answer` that rows of `calls` hold, each with one cell, in the order of the answer.

    A text is a whole cell, an item of it, or an item of the answer that stands within a cell. What the question says
    itself, such as the name that is asked about, supports nothing. Of several cells that hold a text, the one in the
    query that holds most of the others is given.
    """
    found: dict[str, list[AnswerSource]] = {}
    said = {item.casefold(): item for item in _items(answer)}
    for number, call in enumerate(calls, 1):
        for row, record in enumerate(call.answer.records, 1):
            for column, cell in zip(call.answer.columns, record, strict=True):
                for text in _shared(cell, answer, said):
                    if not _holds(question, text):
                        source = AnswerSource(text=text, query=number, row=row, column=column)
                        found.setdefault(text.casefold(), []).append(source)
    whole = {key: each for key, each in found.items() if not any(key != other and key in other for other in found)}
    held = Counter(query for each in whole.values() for query in {source.query for source in each})
    best = [min(each, key=lambda source: (-held[source.query], source.query, source.row)) for each in whole.values()]
    return tuple(sorted(best, key=lambda source: answer.casefold().find(source.text.casefold())))


def _shared(cell: object, answer: str, said: dict[str, str]) -> Iterator[str]:
    """Yield the texts that stand both in `cell` and in `answer`, whose items are `said`, in lower case as keys."""
    if cell is None:
        return
    text = str(cell).strip()
    for item in dict.fromkeys([text, *_items(text)]):
        if (len(item) >= _SHORTEST or not isinstance(cell, str)) and _holds(answer, item):
            yield item
    for item in said.values():
        if len(item) >= _SHORTEST and _holds(text, item):
            yield item


def _items(text: str) -> list[str]:
    return [part for part in _SEPARATOR.split(text.strip()) if part]


def _holds(text: str, part: str) -> bool:
    """Return whether `part` stands in `text`, in whatever case, and is not a piece of a word or number there."""
    before = rf"(?<!{_LATIN})" if re.match(_LATIN, part) else ""
    after = rf"(?!{_LATIN})" if re.search(rf"{_LATIN}$", part) else ""
    return re.search(before + re.escape(part) + after, text, re.IGNORECASE) is not None
