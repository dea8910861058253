"""Choose other names of a row that belong to no other row, and decide whether a searched word has other words."""

from __future__ import annotations

import random
from collections import defaultdict
from collections.abc import Iterator, Mapping
from functools import cache, cached_property, partial
from itertools import chain, permutations

from sql_agent.database import Naming
from sql_agent.database.name_index import Name, NameIndex, called_otherwise, comparable
from sql_agent.tasks.described.catalog import Catalog
from sql_agent.tasks.described.contents import Row
from sql_agent.tasks.described.statement import Comparison

_LEAST = 2  # minimum number of characters of a shortened name
_LONG = 4  # minimum number of characters of a Chinese word that is compared with its beginning
_FAR_MORE = 1.5  # from so many times as many cells with the beginning, the word is a part of what people search
_DENIED = 0.1  # maximum share of the cells with a word in which a negation stands before it


class OtherNames:
    """Chooses other names of a row: those whose best match in the name index, which hints also use, is this row.

    The class also knows which words mean the same, and so whether a searched word misleads.
    """

    def __init__(self, catalog: Catalog, namings: Mapping[str, Naming]) -> None:
        self._catalog, self._namings = catalog, namings
        self._aliases: dict[tuple[str, str], list[str]] = {}  # by table and name
        self._index = NameIndex(self.pairs())

    def of(self, row: Row, chosen: random.Random) -> str | None:
        """Return an everyday name of a row, such as a brand, a short name or a misspelt name, or None."""
        if row.table not in self._namings:
            return None
        key = comparable(row.name)
        others = [name for name in self._aliases.get((row.table, key), ()) if comparable(name) not in key]
        ways = [chosen.sample(others, len(others)), list(self.short(row)), list(self.misspelt(row.name, chosen))]
        if chosen.random() < 0.5:  # so that rows with everyday names are also misspelt
            chosen.shuffle(ways)
        return next((name for way in ways for name in way if self._leads_to(name, row)), None)

    def aliases_of(self, name: str) -> list[str]:
        """Return the aliases of the rows with this name in any table."""
        return [alias for table in self._namings for alias in self._aliases.get((table, comparable(name)), ())]

    def knows(self, text: str) -> bool:
        """Return whether a text is the name, or another name, of a row."""
        return bool(self._index.rows(comparable(text)))

    @cache
    def is_misleading(self, table: str, column: str, word: str) -> bool:
        """Return whether people who search a Chinese word in a column mean other cells than those that contain it.

        They do if more cells have another word for it, if other cells have it in another spelling, if far more have a
        long word without its last character (乳腺增生症, 乳腺增生), or if a negation stands before the word in many of
        its cells (非处方药).
        """
        if word.isascii():
            return False
        cells = partial(self._catalog.cells_with, table, column)
        others = (other for other in self._other_words.get(word, ()) if other not in word)
        is_long, negations = len(word) >= _LONG, self._catalog.words.get("negations", ())
        return (
            any(cells(other) > cells(word) for other in others)
            or sum(cells(f"{no}{word}") for no in negations) > _DENIED * cells(word)
            or (is_long and cells(word[:-1]) >= _FAR_MORE * cells(word))
            or (is_long and self._has_other_spelling(table, column, word))
        )

    def _has_other_spelling(self, table: str, column: str, word: str) -> bool:
        found = {row.place for row in self._catalog.matching(table, Comparison(column, "LIKE", word))}
        items = self._catalog.places_by_item(table, column)
        return any(not places <= found for item, places in items.items() if _is_spelling(item, word))

    @cached_property
    def _other_words(self) -> Mapping[str, set[str]]:
        """The words with the same meaning, by word: an item and its everyday words, a name and its aliases."""
        groups = [(item, *words) for item, words in self._catalog.description.said.items()]
        groups += [(name, *aliases) for (_, name), aliases in self._aliases.items()]
        found: dict[str, set[str]] = defaultdict(set)
        for word, other in chain.from_iterable(permutations(group, 2) for group in groups):
            found[word].add(other)
        return found

    def pairs(self) -> Iterator[tuple[str, Name]]:
        """Yield all names and aliases of rows, each with the row's `Name`, as the database's name index has them."""
        for table, naming in self._namings.items():
            rows = [row for row in self._catalog.rows[table] if row.name.strip()]
            by_key = {comparable(row.name): row for row in rows}
            names = {key: Name(row.name, table, naming.column) for key, row in by_key.items()}
            yield from ((row.name, names[key]) for key, row in by_key.items())
            for row in rows:
                texts = ((row.values.get(column), find) for column, find in naming.aliases.items())
                for alias in (alias for text, find in texts if isinstance(text, str) for alias in find(text)):
                    if alias.isascii() == row.name.isascii():  # few people say a Chinese name in English
                        self._aliases.setdefault((table, comparable(row.name)), []).append(alias)
                    yield alias, names[comparable(row.name)]
            for alias, name in called_otherwise(names, naming):
                self._aliases.setdefault((table, comparable(name.text)), []).append(alias)
                yield alias, name

    def _leads_to(self, text: str, row: Row) -> bool:
        """Return whether the best match of `text` in the index is only this row, and no row has the name `text`."""
        if not self._catalog.fits(text):
            return False
        found = self._index.find(text)
        groups = (found.exact, found.aliases, found.longer, found.near, found.abbreviated)
        first = next((group for group in groups if group), ())
        return [name.text for name in first] == [row.name] and not found.exact

    def short(self, row: Row) -> Iterator[str]:
        """Yield the row's name without a word at its end that people leave out, such as a dosage form."""
        for word in sorted(self._namings[row.table].beside, key=len, reverse=True):
            rest = row.name[: -len(word)].strip() if row.name.casefold().endswith(word) else ""
            if len(rest) >= _LEAST and (not row.name.isascii() or row.name[len(rest)] == " "):
                yield rest

    def misspelt(self, name: str, chosen: random.Random) -> Iterator[str]:
        """Yield the name with a character that looks or sounds like another one, or with two letters swapped."""
        pairs = self._catalog.words.get("confused", ())
        swaps = [(a, b) for pair in pairs for a, b in (pair, pair[::-1]) if a in name]
        if swaps:
            wrong, right = chosen.choice(swaps)
            yield name.replace(wrong, right, 1)
        if name.isascii() and len(name) > 5:  # a shorter word with an error is another word
            place = chosen.randrange(1, len(name) - 2)
            if name[place : place + 2].isalpha() and name[place] != name[place + 1]:
                yield name[:place] + name[place + 1] + name[place] + name[place + 2 :]


def _is_spelling(text: str, word: str) -> bool:
    """Return whether two Chinese texts differ only in the order of characters, or by one or two more characters.

    The first and the last character are the same: 白细胞计数减少 is 白细胞减少, but 慢性阑尾炎 is not 阑尾炎.
    """
    short, long = sorted((text, word), key=len)
    if len(short) < _LONG or len(long) > len(short) + 2 or short == long or long.isascii():
        return False
    rest = iter(long)
    is_inside = len(short) < len(long) and all(character in rest for character in short)
    return (is_inside or sorted(short) == sorted(long)) and (short[0], short[-1]) == (long[0], long[-1])
