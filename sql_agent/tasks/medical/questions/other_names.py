"""How people write a name otherwise than the database does, made from the name itself and from its row's own text."""

from __future__ import annotations

import random
import re
from collections.abc import Iterator
from itertools import pairwise

from sql_agent.schemas import Lang
from sql_agent.tasks.medical.banks import NameForms
from sql_agent.tasks.medical.questions.catalog import Entity
from sql_agent.tasks.medical.tables import ALIAS_COLUMNS, aliases_in

# A shorter name says too little, a longer "other name" is a sentence.
_SHORTEST = {"en": 4, "zh": 2}
_LONGEST = {"en": 30, "zh": 10}
_TYPO_FROM = {"en": 6, "zh": 4}
_ALIAS = {"en": re.compile(r"[A-Za-z][A-Za-z -]+"), "zh": re.compile(r"[一-鿿]+|[A-Z][A-Za-z]{2,11}")}
_BRACKETED = re.compile(r"(?P<outside>[^()（）]+)[(（](?P<inside>[^()（）]+)[)）]")
# A name of several parts is not cut between them.
_JOINED = re.compile(r"[()（）\[\]［］/—－-]")
_WORD = re.compile(r"[A-Za-z]+")
_MAX_INITIALS = 5
# Half of a dosage form's name: 软膏 without 膏.
_HALF_A_FORM = ("软", "乳", "眼", "滴", "贴", "糖")


class OtherNames:
    """Yields the ways to write a name, by kind; whether a way still leads to its row is for the `Namer` to say."""

    def __init__(self, names: NameForms, lang: Lang) -> None:
        self._names = names
        self._lang = lang
        self._confused = [pair.split("/") for pair in names.confused]
        roots = sorted(names.roots, key=len, reverse=True)
        self._root = re.compile("|".join([*map(re.escape, roots), "."]))

    def shortened(self, entity: Entity) -> Iterator[str]:
        """Yield the name without what stands beside its stem (a salt, a dosage form), or one side of a bracket."""
        for part in self._stems(entity.name):
            if part != entity.name:
                yield part
        if match := _BRACKETED.fullmatch(entity.name):
            yield from (match["outside"].strip(), match["inside"].strip())

    def abbreviated(self, entity: Entity) -> Iterator[str]:
        """Yield the beginning of the name, or the first letters of its parts."""
        stems = list(self._stems(entity.name))
        if self._lang == "en":
            texts = [entity.name, *aliases_of(entity)]
            yield from (initials for text in texts if (initials := _initials(text)))
            yield from (first for stem in stems if len(first := stem.rpartition(" ")[0]) >= _SHORTEST["en"])
            return
        yield from (initials for text in aliases_of(entity) if (initials := _initials(text)))
        for stem in stems:
            if stem.endswith(self._names.suffixes):
                continue
            if not stem.startswith(self._names.prefixes) and not _JOINED.search(stem):
                yield from self._beginnings(stem, entity.table)
            yield from self._first_characters(self._root.findall(stem))

    def _beginnings(self, stem: str, table: str) -> Iterator[str]:
        """Half of a name and more: of a drug's any characters, of a disease's whole words."""
        half = max(_SHORTEST["zh"], (len(stem) + 1) // 2)
        if table == "drugs_info":
            yield from (stem[:size] for size in range(half, len(stem)))
            return
        size = 0
        for root in self._root.findall(stem):
            size += len(root)
            if len(root) > 1 and half <= size < len(stem):
                yield stem[:size]

    def _first_characters(self, roots: list[str]) -> Iterator[str]:
        if 2 <= len(roots) <= 4 and 2 * sum(len(root) > 1 for root in roots) > len(roots):
            yield roots[0][0] + roots[-1][0]
            yield "".join(root[0] for root in roots)

    def lengthened(self, entity: Entity) -> Iterator[str]:
        """Yield the name of a drug with one of its dosage forms, which the database leaves out."""
        made_as = (entity.values.get("form") or "").lower()
        if not entity.name.endswith((*self._names.suffixes, *self._names.forms)):
            yield from (entity.name + form for form in self._names.forms if form.strip().removesuffix("s") in made_as)

    def aliases(self, entity: Entity) -> Iterator[str]:
        """Other names that stand in the row's own text."""
        for alias in aliases_of(entity):
            if _ALIAS[self._lang].fullmatch(alias) and 2 <= len(alias) <= _LONGEST[self._lang]:
                yield alias

    def called(self, entity: Entity) -> Iterator[str]:
        """Everyday names and brands from the phrase bank, which no row has to tell."""
        stems = dict.fromkeys((entity.name, *self._stems(entity.name)))
        yield from (name for stem in stems for name in self._names.called[entity.table].get(stem, ()))

    def misspelt(self, entity: Entity, rng: random.Random) -> Iterator[str]:
        """Yield a few typing errors: a character that sounds or looks alike, one missing, in English two swapped."""
        if len(entity.name) >= _TYPO_FROM[self._lang]:
            yield from sorted({self._typo(entity.name, rng) for _ in range(3)} - {entity.name})

    def _stems(self, name: str) -> Iterator[str]:
        starts = [len(prefix) for prefix in self._names.prefixes if name.startswith(prefix)]
        ends = [len(suffix) for suffix in self._names.suffixes if name.endswith(suffix)]
        for start in (0, *starts):
            for end in (0, *ends):
                stem = name[start : len(name) - end].strip()
                if len(stem) >= _SHORTEST[self._lang] and not (end and stem.endswith(_HALF_A_FORM)):
                    yield stem

    def _typo(self, name: str, rng: random.Random) -> str:
        confused = [
            name[:at] + right + name[at + len(wrong) :]
            for pair in self._confused
            for wrong, right in (pair, pair[::-1])
            for at in range(len(name))
            if name.startswith(wrong, at)
        ]
        if confused and rng.random() < 0.75:
            return rng.choice(confused)
        at = rng.randrange(1, len(name) - 1)
        if self._lang == "zh" or rng.random() < 0.5:
            return name[:at] + name[at + 1 :]
        return name[:at] + name[at + 1] + name[at] + name[at + 2 :]


def aliases_of(entity: Entity) -> list[str]:
    """Return the other names that the row's own text tells."""
    return list(aliases_in(entity.values.get(ALIAS_COLUMNS[entity.table]) or ""))


def _initials(text: str) -> str | None:
    """Return the capitals that stand for an English name of several words."""
    words = _WORD.findall(text)
    spoken = [word for word, following in pairwise([*words, ""]) if following or len(word) > 1]
    plain = " ".join(words) == text.replace("-", " ")
    fits = 2 < len(spoken) <= _MAX_INITIALS and all(len(word) > 2 for word in spoken)
    return "".join(word[0].upper() for word in spoken) if plain and fits else None
