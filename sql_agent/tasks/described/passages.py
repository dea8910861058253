"""Choose a word of a long cell and the sentences about it, so that a question can ask for this part."""

from __future__ import annotations

import random
import re
from collections import Counter
from functools import cache, cached_property

from sql_agent.database.schema import fold
from sql_agent.tasks.described.catalog import COMMON, LONGEST_ANSWER, Catalog, Row, labelled

_SEVERAL = 3  # least sentences of a cell
_LONGEST_WORD = 6  # characters of a Chinese word
_LEAST_CELLS = 3  # cells in which a word stands alone
_MOST_INSIDE = 20  # greatest ratio of a word's places in all texts to the cells where the word stands alone
_LEAST_SAID = 4  # characters of a sentence besides the word
_WORD = re.compile(r"(?<!\w)(?:[a-z]{5,}|[\u3400-\u9fff]{2,8})(?!\w)")  # that stands alone, in lower case
_LIST_NUMBER = re.compile(r"^[(（]?\d{1,2}[)）.．、](?!\d)\s*")
_HEADING = re.compile(r"([^:：]+)[:：]")


class Passages:
    """Chooses words in the texts of a database, and the sentences about them."""

    def __init__(self, catalog: Catalog, chosen: random.Random) -> None:
        self._catalog, self._chosen = catalog, chosen

    def one_of(self, row: Row, column: str) -> tuple[str, list[str]] | None:
        """Return a word and the sentences of a cell about it; None if the sentences are few or no word is clear."""
        sentences = self._catalog.sentences(row, column)
        if len(sentences) < _SEVERAL:
            return None
        words = self._words(self._chosen.choice(sentences))
        said = {word: self._about(row, column, word) for word in words if word not in fold(row.name)}
        clear = [(word, inside) for word, inside in said.items() if inside]
        return self._chosen.choice(clear) if clear else None

    def _about(self, row: Row, column: str, word: str) -> list[str]:
        """Return the sentences of a cell with `word`, without list numbers, or those below the heading `word`.

        Return [] if these are more than half of the cell, too long or little more than the word. Also return [] if
        another cell of the row has the word, because the question does not name the column.
        """
        sentences = [_LIST_NUMBER.sub("", sentence) for sentence in self._catalog.sentences(row, column)]
        inside = [sentence for sentence in sentences if word in fold(sentence)]
        others = [fold(str(cell)) for name, cell in row.values.items() if name != column]
        if any(word in cell for cell in others) or any(len(each) < len(word) + _LEAST_SAID for each in inside):
            return []
        if any(word in fold(heading[1]) for each in inside if (heading := _HEADING.match(each))):
            is_heading = re.match(rf"{re.escape(word)}[:：]", inside[0], re.IGNORECASE) and len(inside) == 1
            inside = labelled(sentences, inside[0][: len(word) + 1]) if is_heading else []
        return inside if 2 * len(inside) <= len(sentences) and sum(map(len, inside)) <= LONGEST_ANSWER else []

    def _words(self, text: str) -> list[str]:
        """Return the words of a text: parts that stand alone in at least three cells, such as 孕妇 of 孕妇慎用."""
        folded = fold(text)
        lengths = range(2, _LONGEST_WORD + 1)
        parts = {folded[start : start + length] for start in range(len(folded)) for length in lengths}
        words = {*_WORD.findall(folded), *(part for part in parts if not part.isascii())}
        return sorted(word for word in words - COMMON if self._is_word(word) and self._catalog.says(word))

    @cache  # noqa: B019  the passages live as long as the program makes questions
    def _is_word(self, part: str) -> bool:
        """Return whether a part stands alone in some cells, and is not mostly inside other words, as 用于 is."""
        alone = self._alone[part]
        if alone < _LEAST_CELLS or part.isascii():
            return alone >= _LEAST_CELLS
        return sum(cells.count(part) for cells in self._catalog.texts()) <= _MOST_INSIDE * alone

    @cached_property
    def _alone(self) -> Counter[str]:
        """The number of cells with each word of letters, or short Chinese text, that stands alone."""
        cells = (cell for cells in self._catalog.texts() for cell in cells.split("\0"))
        return Counter(word for cell in cells for word in set(_WORD.findall(cell)))
