"""Questions about a detail: the one sentence of a long cell that has a word."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import cache, cached_property

from sql_agent.tasks.described.catalog import Row
from sql_agent.tasks.described.description import Column
from sql_agent.tasks.described.drafts import Draft, Drafting

_LEAST_SENTENCES = 3  # minimum number of sentences of a cell of which one is asked for
_MOST_OF_A_SENTENCE = 120  # maximum number of characters of such a sentence
_MORE = 10  # minimum number of characters of a sentence beside the word
_COMMON = 0.05  # maximum share of a column's cells that have the word; 3 cells are always allowed
_WHOLE = 0.2  # minimum share of the cells with an item in which it is whole; other items are parts of words
_SHORT = 2  # maximum number of characters of a word that may be a part of another one by chance
_LONGEST_WORD = 24  # maximum number of characters of a word


class DetailQuestions(Drafting):
    """Yields drafts about details of named rows, in random order."""

    def mention(self) -> Iterator[Draft]:
        """Yield drafts that ask for the one sentence of a cell that has a word, which no other cell of the row has."""
        for row, name, column in self._cells("mention", "list", "text"):
            if not column.mention:
                continue
            sentences = self._catalog.sentences(row, name)
            if len(sentences) < _LEAST_SENTENCES:
                continue
            found = self._chosen.choice(sentences)
            words = self._words_to_ask(row, name, column, found) if len(found) <= _MOST_OF_A_SENTENCE else []
            if words:
                slots = self._slots(column, name=self._name(row), value=self._chosen.choice(words))
                yield self._about_row(self._say(column.mention, **slots), row, [name], [found])

    def _words_to_ask(self, row: Row, name: str, column: Column, sentence: str) -> list[str]:
        """Return the words of a sentence that stand once in the row and in few cells of the column.

        They are those of the column's `mentioned`, else names of rows and items of lists.
        """
        cells = "\n".join(str(cell) for cell in (row.name, *row.values.values()) if cell is not None)
        own = [word for word in column.mentioned if word in sentence]
        most = max(3, _COMMON * len(self._catalog.filled_rows(row.table, name)))
        return [
            word
            for word in own or filter(self._is_word, self._known_in(sentence))
            if len(sentence) >= len(word) + _MORE
            and sum(word in each for each in self._catalog.sentences(row, name)) == 1
            and cells.count(word) == sentence.count(word)
            and (word in own or self._catalog.cells_with(row.table, name, word) <= most)
        ]

    def _known_in(self, text: str) -> list[str]:
        """Return the known words in a text, from left to right, each the longest that starts there."""
        found, start = [], 0
        while start < len(text) - 1:
            ends = range(min(len(text), start + _LONGEST_WORD), start + 1, -1)
            end = next((end for end in ends if text[start:end] in self._known and _is_whole(text, start, end)), None)
            if end is not None:
                found.append(text[start:end])
            start = end or start + 1
        return found

    @cached_property
    def _known(self) -> frozenset[str]:
        """The names of rows and the searched items of lists."""
        return frozenset(filter(self._catalog.is_searchable, (*self._catalog.names, *self._items)))

    @cached_property
    def _items(self) -> Mapping[str, list[tuple[str, str]]]:
        """The (table, column) of lists, by searched item."""
        found: dict[str, list[tuple[str, str]]] = {}
        for table, described in self._tables.items():
            for name, column in described.columns.items():
                if column.kind == "list" and not column.vocabulary:
                    for item in self._catalog.terms(table, name):
                        found.setdefault(item, []).append((table, name))
        return found

    @cache
    def _is_word(self, item: str) -> bool:
        """Return whether `item` is the whole of an item in enough of the cells that contain it, or a longer name."""
        lists = self._items.get(item, ())
        whole, cells = (sum(count(*at, item) for at in lists) for count in (self._whole, self._catalog.cells_with))
        return whole > _WHOLE * cells or (item in self._catalog.names and len(item) > _SHORT)

    def _whole(self, table: str, column: str, item: str) -> int:
        return self._catalog.terms(table, column)[item]


def _is_whole(text: str, start: int, end: int) -> bool:
    """Return whether `text[start:end]` is no part of a longer word.

    ASCII letters must not go on at either side. Of other short words, one side must be an end or a punctuation mark.
    """
    before, after = text[max(0, start - 1) : start], text[end : end + 1]
    if text[start:end].isascii():
        return not any(side.isascii() and side.isalpha() for side in (before, after))
    return end - start > _SHORT or not (before.isalnum() and after.isalnum())
