"""Questions about details: a sentence with a word, and which of similar rows have an item."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from functools import cache, cached_property

from sql_agent.database.schema import fold
from sql_agent.tasks.described.contents import Row
from sql_agent.tasks.described.description import Column, Part
from sql_agent.tasks.described.drafts import Draft
from sql_agent.tasks.described.row_questions import LEAST_ALIKE
from sql_agent.tasks.described.yes_no_questions import YesNoQuestions, is_apart

_LEAST_SENTENCES = 3  # minimum number of sentences of a cell of which one is asked for
_MOST_OF_A_SENTENCE = 120  # maximum number of characters of such a sentence
_MORE = 10  # minimum number of characters of a sentence beside the word
_COMMON = 0.05  # maximum share of a column's cells that have the word; 3 cells are always allowed
_WHOLE = 0.2  # minimum share of the cells with an item in which it is whole; other items are parts of words
_SHORT = 2  # maximum number of characters of a word that may be a part of another one by chance
_MOST_OF_A_CELL = 400  # maximum number of characters of a cell of two or three that are compared
_LONGEST_WORD = 24  # maximum number of characters of a word


class DetailQuestions(YesNoQuestions):
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

    def same(self) -> Iterator[Draft]:
        """Yield yes-no drafts that ask whether two similar rows have the same cell or part; yes and no take turns."""
        wanted = True
        for row, name, column in self._cells("same", "list", "text", "category"):
            asked: list[tuple[Part | None, tuple[str, ...]]] = [
                (part, part.ask_same) for part in column.parts.values() if part.ask_same
            ]
            asked += [(None, column.ask_same)] if column.ask_same else []
            if not asked or not self._is_short(row, name):
                continue
            part, ways = self._chosen.choice(asked)
            texts = {each: " ".join(self._catalog.facts(each, name, part)) for each in (row, *self._alike(row, name))}
            similar = [each for each in texts if each is not row and are_same(texts[row], texts[each]) is wanted]
            if similar:
                other = self._chosen.choice(similar)
                wording = self._say(ways, **self._slots(column, name=self._name(row), other=self._name(other)))
                yield self._of_both(wording, [row, other], name, self._yes(is_true=wanted))
                wanted = not wanted

    def which(self) -> Iterator[Draft]:
        """Yield drafts that ask which of two or three similar rows has an item."""
        for row, name, column in self._cells("which", "list", "text"):
            if not column.ask_which or not self._is_short(row, name):
                continue
            word = self._chosen.choice(self._said_in(row, name, column) or [""])
            said = self._chosen.choice([word, *self._catalog.description.said.get(word, ())])
            known = column.has_vocabulary or word in self._catalog.terms(row.table, name)
            if not word or not known or not self._has_whole(str(row.values[name]), word):
                continue
            rare = [each for each in word if not each.isascii() and self._is_rare(row.table, name, each)]
            others = [
                each
                for each in self._alike(row, name)
                if not _has(each, name, word, said) and not any(letter in str(each.values[name]) for letter in rare)
            ]
            if not others or any(said in each.name for each in (row, *others)):
                continue
            rows = self._shuffled([row, *others[: self._chosen.choice((1, 1, 2))]])
            first, *rest = map(self._name, rows)
            slots = self._slots(column, name=first, other=self._words["comma"].join(rest), value=said)
            yield self._of_both(self._say(column.ask_which, **slots), rows, name, [row.name])

    def _is_rare(self, table: str, name: str, character: str) -> bool:
        """Return whether so few cells have a character that others with it mean much the same (结石病, 胆石症)."""
        return self._catalog.cells_with(table, name, character) < _COMMON * len(self._catalog.filled_rows(table, name))

    def _alike(self, row: Row, name: str) -> list[Row]:
        similar = self._similar(row, name, LEAST_ALIKE if self._tables[row.table].alike else 1)
        return [each for each in similar if self._is_short(each, name)]

    @staticmethod
    def _is_short(row: Row, name: str) -> bool:
        return 0 < len(str(row.values[name] or "")) <= _MOST_OF_A_CELL

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
            end = next(
                (end for end in ends if text[start:end] in self._known and self._is_whole(text, start, end)), None
            )
            if end is not None:
                found.append(text[start:end])
            start = end or start + 1
        return found

    def _has_whole(self, text: str, word: str) -> bool:
        cell = fold(text)
        return any(self._is_whole(cell, *found.span()) for found in re.finditer(re.escape(fold(word)), cell))

    def _is_whole(self, text: str, start: int, end: int) -> bool:
        """Return whether `text[start:end]` is no part of a longer word.

        ASCII letters must not go on at either side. Beside other words stand an end, a sign, or a word that joins.
        """
        before, after = text[max(0, start - 1) : start], text[end : end + 1]
        if text[start:end].isascii():
            return not any(side.isascii() and side.isalpha() for side in (before, after))
        joins = (before, "before_words"), (after, "after_words")
        return all(not side.isalpha() or side in self._words.get(words, "") for side, words in joins)

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


def _has(row: Row, name: str, *words: str) -> bool:
    """Return whether the cell of a row may have one of `words`, or a part of it."""
    return not all(is_apart(word, fold(str(row.values[name]))) for word in words)


def are_same(text: str, other: str) -> bool | None:
    """Return whether two texts say the same; None if they may.

    They do not if only their numbers differ, or if each has a word of which the other has no part. A Chinese word of
    two characters has each of them as a part, as 避光 and 遮光 are one. Numbers with other units may be equal
    (2年, 24个月).
    """
    words, others = (set(re.findall(r"\w+", fold(each))) for each in (text, other))
    if not words or not others or words == others:
        return True if words and words == others else None
    beside = [re.split(r"\d+", each) for each in (text, other)]
    if beside[0] == beside[1]:
        return False
    if len(words) == len(others) == 1 and all(len(each) > 1 for each in beside):
        return None
    pairs = (words, fold(other)), (others, fold(text))
    return False if all(any(_is_no_part(word, cell) for word in mine) for mine, cell in pairs) else None


def _is_no_part(word: str, cell: str) -> bool:
    return is_apart(word, cell) and (
        word.isascii() or len(word) > _SHORT or not any(character in cell for character in word)
    )
