"""Find the names of rows that are similar to a text: longer names, aliases, misspellings, parts, abbreviations.

Whole names are compared, not trigrams, because most Chinese names have one to four characters. A search among 50,000
names takes a few milliseconds.
"""

from __future__ import annotations

import re
import unicodedata
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import NamedTuple

from rapidfuzz import fuzz, process
from rapidfuzz.distance import OSA, LCSseq

from sql_agent.database.schema import Naming, Schema, fold, quoted

_MAX_NAMES = 100_000  # maximum for one table
_MAX_SEARCHED_CHARS = 80
_CANDIDATES = 200
_TYPO_EVERY = 4  # one typing error is tolerated for every four characters
_SHARED_CHARS = 3  # minimum number of consecutive Chinese characters, before a common end, that a text and a name share
_COMMON_END = 100  # an end of two or three characters is common if at least this many names have it
_MAX_SHARING_CHARS = 20  # a longer Chinese text is not searched for parts of names
_MAX_CUT_CHARS = 8  # maximum length of a text whose beginning or end may abbreviate a name
_MOST_CUT = 4  # maximum number of characters of a text before or after a misspelt Chinese name
_SHARED_LETTERS = 5  # minimum length of a word that a text and a name share
_MAX_WORDS = 8  # a text with more words is not searched for parts of names
_WORDS_TOGETHER = 3  # maximum number of consecutive words that are searched as one part
_MOST_SHARING = 40  # a part of more names is too common, such as 综合征 or "tablets"
_MOST_CALLED = 3  # maximum number of rows for one formal name
_CHINESE = re.compile(r"[\u3400-\u9fff]")
DASH = re.compile("[‐-―−]")  # any but the hyphen of ASCII
_POSSESSIVE = re.compile(r"(?<=[a-z])['’]s(?![a-z])")
_WORD_CHAR = re.compile(r"[a-z0-9]")
# `inner` is the text in parentheses, from its first capital, or first letter of another alphabet, on.
_TWO_NAMES = re.compile(r"(?P<outer>[^()]+?)(?: \([^()A-Z]*?(?P<inner>[A-Z\u0080-\uffff][^()]+)\))?")
_SHORT_CHINESE = re.compile(r"[\u3400-\u9fff]{2,4}")
_INITIALS = re.compile(r"[a-z][a-z0-9]{1,5}")
# Maximum number of characters of a name before the first character of its abbreviation, and between two of them.
_MAX_BEFORE, _MAX_BETWEEN = 3, 5
_FEW = 4  # a beginning of more names is too common, such as 复方


@dataclass(frozen=True)
class Name:
    """The name of a row as its cell has it, and the cell's table and column."""

    text: str
    table: str
    column: str


class Found(NamedTuple):
    """The names of rows that are similar to one text, the most similar first.

    `exact` names equal the text except for case and blanks. `aliases` are the names of rows with this alias. `longer`
    names contain the text. `near` names are those that the text misspells or contains. `abbreviated` names are those
    that the text, its beginning or its end may abbreviate.
    """

    exact: tuple[Name, ...] = ()
    aliases: tuple[Name, ...] = ()
    longer: tuple[Name, ...] = ()
    near: tuple[Name, ...] = ()
    abbreviated: tuple[Name, ...] = ()


class NameIndex:
    def __init__(self, names: Iterable[tuple[str, Name]]) -> None:
        """`names` are pairs: a text that names a row (the row's name or an alias), and the row's `Name`."""
        self._names: dict[str, dict[Name, None]] = {}
        for text, name in names:
            key = comparable(text)
            for form in dict.fromkeys((key, _POSSESSIVE.sub("", key))) if key else ():  # "Newton law" is Newton's law
                self._names.setdefault(form, {})[name] = None
        self.keys: Sequence[str] = list(self._names)  # all names and aliases, in the form of `comparable`
        self._by_size = _by_size(self.keys)
        self._places: dict[str, list[int]] = {}  # the places in `keys` of the keys with a character
        for place, key in enumerate(self.keys):
            for char in set(key):
                self._places.setdefault(char, []).append(place)
        ends = Counter(key[-size:] for key in self.keys for size in (2, 3) if len(key) > size)
        # Common ends of names, such as 胶囊. The text before such an end may be a part of an unknown name.
        self.ends = tuple(end for end, count in ends.items() if count >= _COMMON_END)

    def find(self, text: str) -> Found:
        """Return the names that are similar to the first 80 characters of `text`."""
        key = comparable(text)[:_MAX_SEARCHED_CHARS]
        if not key:
            return Found()
        exact = self.exact(key)
        aliases = tuple(name for name in self.rows(key) if name not in exact)
        named = self._named(other for other in self._with(key) if other != key)
        longer = tuple(name for name in named if name not in aliases)
        if exact or aliases:
            return Found(exact, aliases, longer)
        near = self._named(self._near(key, is_part=bool(longer)))
        short = () if near else self._named(self._abbreviated(key) if longer else self._short_for(key))
        return Found((), (), longer, near, short)

    def rows(self, key: str) -> tuple[Name, ...]:
        """Return the rows with the name or alias `key`, in the form of `comparable`; else with `key` without "'s"."""
        form = key if key in self._names else _POSSESSIVE.sub("", key)
        return tuple(self._names.get(form, ()))

    def exact(self, text: str) -> tuple[Name, ...]:
        """Return the names that equal `text` except for case and blanks."""
        key = comparable(text)
        return tuple(name for name in self.rows(key) if comparable(name.text) == key)

    def _named(self, keys: Iterable[str]) -> tuple[Name, ...]:
        """Return the rows of each of `keys` in turn: first rows whose name is the key, then rows with it as alias."""
        ordered = (sorted(self._names[key], key=lambda name: comparable(name.text) != key) for key in keys)
        return tuple(dict.fromkeys(name for names in ordered for name in names))

    def _near(self, key: str, *, is_part: bool) -> list[str]:
        """Return the index keys that `key` misspells, those that share a part with `key`, and those in `key`.

        If `key` misspells a name, or longer names contain `key` (`is_part`), shared parts are not searched. A shared
        part must be longer than the longest name in `key`.
        """
        mistyped, inside = self._misspelt(key), self._inside(key)
        part, sharing = ("", []) if mistyped or is_part else self._sharing(key)
        return [*mistyped, *(sharing if len(part) > len([*inside, ""][0]) else []), *inside]

    def _with(self, part: str) -> list[str]:
        """Return the index keys that contain `part`: first those that start with `part`, then shorter before longer."""
        found = (key for place in self._with_rarest(part)[0] if part in (key := self.keys[place]))
        return sorted(found, key=lambda key: (not key.startswith(part), len(key)))

    def _with_rarest(self, part: str) -> list[list[int]]:
        """Return the places of the keys with each character of `part`, the rarest character first."""
        return sorted((self._places.get(char, []) for char in set(part)), key=len)

    def _sharing(self, key: str) -> tuple[str, list[str]]:
        """Return the longest part of `key` that names contain, and these names.

        A part that is shorter than half of `key` does not count if more than `_MOST_SHARING` names contain the part. In
        alphabetic text, a part is one to three words, which may be misspelt.
        """
        if _CHINESE.search(key):
            parts, shortest_misspelt = self._chinese_parts(key), max(len(key) - _MOST_CUT, _TYPO_EVERY)
        else:
            parts, shortest_misspelt = _word_parts(key), 0
        for part in parts:
            found = self._with(part) or (self._misspelt(part) if len(part) >= shortest_misspelt else [])
            if found and (len(found) <= _MOST_SHARING or 2 * len(part) >= len(key)):
                return part, sorted(found, key=lambda name: -fuzz.partial_ratio(name, key))
        return "", []

    def _chinese_parts(self, key: str) -> Iterator[str]:
        """Yield the substrings of `key` with at least three characters of its stem, see `_stem_size`, longest first."""
        stem = self._stem_size(key)
        if len(key) > _MAX_SHARING_CHARS:
            return
        for size in range(len(key) - 1, _SHARED_CHARS - 1, -1):
            yield from (key[start : start + size] for start in range(min(len(key) - size, stem - _SHARED_CHARS) + 1))

    def _stem_size(self, key: str) -> int:
        """Return the length of the stem of `key`: what is before an end that many names have, such as 胶囊."""
        return len(key) - max((len(end) for end in self.ends if key.endswith(end)), default=0)

    def _misspelt(self, part: str) -> list[str]:
        """Return names that differ from `part` by at most one typing error per four characters, the nearest first."""
        if len(part) < 3:  # a change of one in two characters makes another name
            return []
        allowed = max(1, len(part) // _TYPO_EVERY)
        # `allowed` typing errors leave one of any `allowed + 1` characters. Few names have a given Chinese character.
        having, by_size = self._with_rarest(part)[: allowed + 1], self._by_size
        if len(having) > allowed and sum(map(len, having)) < len(self.keys) / 4:
            by_size = _by_size(self.keys[place] for place in sorted({*chain(*having)}))
        found = [
            (far, key)
            for size in range(len(part) - allowed, len(part) + allowed + 1)
            for key, far, _ in process.extract(
                part, by_size.get(size, ()), scorer=OSA.distance, score_cutoff=allowed, limit=_CANDIDATES
            )
        ]
        return [key for far, key in sorted(found, key=lambda near: (near[0], near[1][0] != part[0]))]

    def _short_for(self, key: str) -> list[str]:
        """Return names that `key` abbreviates, else those that an end or a beginning of a Chinese `key` abbreviates.

        Names that begin with the part count too. A part of two characters abbreviates nothing, because too many names
        contain them in order. A name that begins like `key` must share most of `key`: 格列美脲 is not short for
        格列齐特.
        """
        found = self._abbreviated(key)
        if found or not _CHINESE.search(key) or len(key) > _MAX_CUT_CHARS:
            return found
        for size in range(len(key) - 1, 1, -1):
            end, beginning = key[-size:], key[:size]
            alike = (name for name in self._begun(beginning) if 2 * LCSseq.similarity(key, name) > len(key))
            parts = [part for part in (end, beginning) if size > 2 and self._stem_size(part) > 1]
            short = next(filter(None, map(self._abbreviated, parts)), [])
            if named := self._begun(end) or short or list(alike):
                return named
        return []

    def _begun(self, part: str) -> list[str]:
        """Return the names that begin with `part`; [] if they are more than `_FEW`."""
        begun = [name for name in self._with(part) if name.startswith(part)]
        return begun if len(begun) <= _FEW else []

    def _abbreviated(self, key: str) -> list[str]:
        """Return names with the Chinese characters of `key` in order, or with words that begin with its letters."""
        if _SHORT_CHINESE.fullmatch(key):
            pattern = re.compile(f".{{0,{_MAX_BEFORE}}}" + f".{{0,{_MAX_BETWEEN}}}".join(key))
        elif _INITIALS.fullmatch(key):
            pattern = re.compile(r"[^ -]*[ -]+".join(key))
        else:
            return []
        return [name for name in self._with(key[0]) if key not in name and pattern.match(name)]

    def _inside(self, key: str) -> list[str]:
        """Return the longest non-overlapping names that occur in `key`, the longest first.

        An alias follows a longer name that contains the alias: 阿奇霉素片 comes before 阿奇霉素.
        """
        places = [
            (start, end)
            for start in range(len(key))
            for end in range(start + 2, len(key) + 1)
            if key[start:end] in self._names and is_word(key, start, end)
            if not (start and key.startswith(self.ends, end))
        ]
        taken: list[tuple[int, int]] = []
        for start, end in sorted(places, key=lambda place: place[0] - place[1]):
            if all(end <= first or last <= start for first, last in taken):
                taken.append((start, end))
        found: list[str] = []
        for start, end in taken:
            name = key[start:end]
            if not self.exact(name):
                longer = [each for each in self._with(name) if each != name]
                found += [each for each in longer if is_word(each, at := each.index(name), at + len(name))][:1]
            found.append(name)
        return found


def _by_size(keys: Iterable[str]) -> dict[int, list[str]]:
    found: dict[int, list[str]] = {}
    for key in keys:
        found.setdefault(len(key), []).append(key)
    return found


def read_names(
    schema: Schema, namings: Mapping[str, Naming], read: Callable[[str], Iterable[tuple[object, ...]]]
) -> Iterator[tuple[str, Name]]:
    """Read the names of all tables' rows with `read`, which runs a SELECT, and yield the pairs for `NameIndex`."""
    for known_as, naming in namings.items():
        if (table := schema.spelled(known_as)) is None:
            continue
        columns = schema.columns[table]
        name_column = next(column for column in columns if fold(column) == fold(naming.column))
        others = {column: aliases for column, aliases in naming.aliases.items() if fold(column) in map(fold, columns)}
        selected = ", ".join(map(quoted, (name_column, *others)))
        names: dict[str, Name] = {}
        for text, *cells in read(f"SELECT {selected} FROM {quoted(table)} LIMIT {_MAX_NAMES}"):
            if not isinstance(text, str) or not text.strip():
                continue
            names[comparable(text)] = name = Name(text, table, name_column)
            yield text, name
            for cell, aliases in zip(cells, others.values(), strict=True):
                if isinstance(cell, str):
                    yield from ((alias, name) for alias in aliases(cell))
        yield from called_otherwise(names, naming)


def _names_inside(names: Iterable[Name]) -> Iterator[tuple[str, Name]]:
    """Yield pairs: a text inside the name of exactly one row, and the row's `Name`.

    "A - B (also known as C)" contains the texts "B" and "C". In parentheses, a text begins with the first capital.
    """
    found: dict[str, list[tuple[str, Name]]] = {}
    for name in names:
        if match := _TWO_NAMES.fullmatch(name.text):
            for part in filter(None, (match["outer"].rpartition(" - ")[2], match["inner"])):
                if part != name.text and part[0].isalpha():
                    found.setdefault(comparable(part), []).append((part, name))
    yield from (pairs[0] for pairs in found.values() if len(pairs) == 1)


def called_otherwise(names: Mapping[str, Name], naming: Naming) -> Iterator[tuple[str, Name]]:
    """Yield pairs: a text inside a row's name, or an everyday name in `naming.called`, and the row's `Name`.

    The everyday names are those of a formal name. If no row has the formal name, the rows are those with the shortest
    names made of the formal name and words of `naming.beside`, such as 盐酸二甲双胍片 for 二甲双胍, but not
    阿克拉霉素 for 克拉霉素. In this case, the formal name is also paired with each row whose name is an everyday name.
    `names` maps the comparable form of a row's name to its `Name`.
    """
    yield from _names_inside(names.values())
    all_names = "\n".join(["", *names, ""])
    rest = rest_pattern(naming.beside)
    for known, others in naming.called.items():
        key = comparable(known)
        rows = [names[key]] if key in names else [names[longer] for longer in _shortest_with(key, all_names, rest)]
        yield from ((other, row) for other in others for row in rows)
        if key not in names:
            yield from ((known, names[other]) for other in map(comparable, others) if other in names)


def rest_pattern(beside: frozenset[str]) -> re.Pattern[str]:
    """Return a pattern for what may surround a formal name: words of `beside`, blanks and punctuation."""
    words = sorted(map(comparable, beside), key=len, reverse=True)
    return re.compile("|".join([*map(re.escape, words), r"[\s(),-]"]).join(["(?:", ")*"]))


def _shortest_with(part: str, all_names: str, rest: re.Pattern[str]) -> list[str]:
    """Return the shortest names (lines of `all_names`) that consist of the words `part` between matches of `rest`."""
    found = []
    for line in re.findall(f"[^\n]*{re.escape(part)}[^\n]*", all_names) if part in all_names else ():
        start = line.index(part)
        end = start + len(part)
        if is_word(line, start, end) and rest.fullmatch(line[:start]) and rest.fullmatch(line[end:]):
            found.append(line)
    return sorted(found, key=len)[:_MOST_CALLED]


def comparable(text: str) -> str:
    """Return `text` in the form in which names are compared: NFKC, lower case, single blanks, plain dashes."""
    return " ".join(DASH.sub("-", unicodedata.normalize("NFKC", text)).casefold().split())


def _word_parts(key: str) -> Iterator[str]:
    """Yield parts of three consecutive words, then of two, then single words; each has at least five characters."""
    words = key.split()
    if len(words) > _MAX_WORDS:
        return
    for size in range(min(_WORDS_TOGETHER, len(words) - 1), 0, -1):
        joined = (" ".join(words[start : start + size]) for start in range(len(words) - size + 1))
        yield from (part for part in joined if len(part) >= _SHARED_LETTERS)


def is_word(text: str, start: int, end: int) -> bool:
    """Return whether text[start:end] is no piece of an ASCII word, and is Chinese or has three or more characters."""
    word = text[start:end]
    if len(word) < 3 and not _CHINESE.search(word):
        return False
    before = start > 0 and _WORD_CHAR.match(text[start - 1]) and _WORD_CHAR.match(word[0])
    after = end < len(text) and _WORD_CHAR.match(text[end]) and _WORD_CHAR.match(word[-1])
    return not (before or after)
