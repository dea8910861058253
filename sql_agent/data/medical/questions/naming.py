"""How people write the name of a row, and which SQL still finds it."""

from __future__ import annotations

import random
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cached_property, partial

from sql_agent.data.medical.banks import Names
from sql_agent.data.medical.questions.catalog import Catalog, Entity
from sql_agent.data.medical.questions.draft import name_is, quoted
from sql_agent.data.medical.schema import NAME_COLUMNS
from sql_agent.database.schema import fold

# Of the questions that name one row: how many write the name in a way that the database does not.
OTHER_NAME_SHARE = 0.45
# Of the others: how many look it up with LIKE.
LIKE_SHARE = 0.25
# A shorter name says too little, a longer "other name" is a sentence.
_SHORTEST = {"en": 4, "zh": 3}
_LONGEST = {"en": 30, "zh": 10}
_TYPO_FROM = {"en": 6, "zh": 4}
_NAME = {"en": re.compile(r"[A-Za-z][A-Za-z -]+"), "zh": re.compile(r"[一-鿿]+")}
# Where a row tells its other names.
_TEXTS = {"drugs_info": "description", "disease": "overview"}


@dataclass(frozen=True)
class Naming:
    """`asked` stands in the question, `condition` finds the row. `misses`: the name as asked finds nothing, which a
    first query shows."""

    asked: str
    condition: str
    misses: bool


class Namer:
    """Chooses how a question names a row: as the database does, shortened, by another name, or misspelt."""

    def __init__(self, catalog: Catalog, names: Names) -> None:
        self._catalog = catalog
        self._names = names
        marks = "|".join(map(re.escape, names.also_called))
        self._also_called = re.compile(rf"(?:{marks})([^;；,，、。.:：()（）\n]+)", re.IGNORECASE)

    def choose(self, entity: Entity, rng: random.Random) -> Naming:
        """How one question names `entity`."""
        if rng.random() < OTHER_NAME_SHARE:
            kinds: list[Callable[[Entity], Iterator[Naming]]] = [
                self._shortened,
                self._aliases,
                partial(self._misspelt, rng=rng),
            ]
            rng.shuffle(kinds)
            for kind in kinds:
                if found := list(kind(entity)):
                    return rng.choice(found)
        return self._as_written(entity, rng)

    def _as_written(self, entity: Entity, rng: random.Random) -> Naming:
        """The name of the database, or in small letters, which LIKE takes for the same."""
        lower = entity.name[0].lower() + entity.name[1:]
        asked = lower if entity.name[1:].islower() and rng.random() < 0.5 else entity.name
        if asked != entity.name or rng.random() < LIKE_SHARE:
            column = NAME_COLUMNS[entity.table]
            if self._finds_only(entity, column, entity.name):
                return Naming(asked, f"{column} LIKE {quoted(f'%{asked}%')}", misses=False)
        return Naming(entity.name, name_is(entity), misses=False)

    def _shortened(self, entity: Entity) -> Iterator[Naming]:
        """A part of the name that leads to this row alone."""
        column = NAME_COLUMNS[entity.table]
        for part in self._parts(entity.name):
            if len(part) >= _SHORTEST[self._catalog.lang] and self._finds_only(entity, column, part):
                yield Naming(part, f"{column} LIKE {quoted(f'%{part}%')}", misses=True)

    def _parts(self, name: str) -> Iterator[str]:
        starts = [len(prefix) for prefix in self._names.prefixes if name.startswith(prefix)]
        ends = [len(suffix) for suffix in self._names.suffixes if name.endswith(suffix)]
        for start in (0, *starts):
            for end in (0, *ends):
                if start or end:
                    yield name[start : len(name) - end].strip()

    def _aliases(self, entity: Entity) -> Iterator[Naming]:
        """Another name that stands in the row's own text and in no other row."""
        lang, column = self._catalog.lang, _TEXTS[entity.table]
        for found in self._also_called.findall(entity.values.get(column) or ""):
            alias = found.strip()
            plain = _NAME[lang].fullmatch(alias) and 2 <= len(alias) <= _LONGEST[lang]
            if plain and not self._is_named(alias) and self._finds_only(entity, column, alias):
                yield Naming(alias, f"{column} LIKE {quoted(f'%{alias}%')}", misses=True)

    def _misspelt(self, entity: Entity, rng: random.Random) -> Iterator[Naming]:
        """A typo that stands in no name and is as near to no other name."""
        if len(entity.name) >= _TYPO_FROM[self._catalog.lang]:
            typos = {self._typo(entity.name, rng) for _ in range(3)}
            for typo in sorted(typos - {entity.name}):
                if not self._is_named(typo) and self._nearest(typo) <= {entity.name}:
                    yield Naming(typo, name_is(entity), misses=True)

    def _typo(self, name: str, rng: random.Random) -> str:
        """One character confused with one that sounds or looks alike, missing, or swapped with the next."""
        confused = [(at, pair.replace(name[at], "")) for at in range(len(name)) for pair in self._names.confused
                    if name[at] in pair and len(pair) == 2]  # fmt: skip
        if confused and rng.random() < 0.6:
            at, other = rng.choice(confused)
            return name[:at] + other + name[at + 1 :]
        at = rng.randrange(1, len(name) - 1)
        if rng.random() < 0.5:
            return name[:at] + name[at + 1 :]
        return name[:at] + name[at + 1] + name[at] + name[at + 2 :]

    def _finds_only(self, entity: Entity, column: str, text: str) -> bool:
        """Whether `column LIKE '%text%'` selects this row alone."""
        return [row.row_id for row in self._catalog.rows_with(entity.table, column, text)] == [entity.row_id]

    def _is_named(self, text: str) -> bool:
        return any(self._catalog.rows_with(table, column, text) for table, column in NAME_COLUMNS.items())

    def _nearest(self, text: str) -> set[str]:
        """The names that one missing, added or different character, or two swapped ones, make of `text`."""
        return set().union(*(self._without_one.get(form, ()) for form in _forms(text)))

    @cached_property
    def _without_one(self) -> dict[str, set[str]]:
        """Every name by itself and by each form of it that lacks one character."""
        forms: dict[str, set[str]] = {}
        for rows in self._catalog.rows.values():
            for row in rows:
                for form in _forms(row.name):
                    forms.setdefault(form, set()).add(row.name)
        return forms


def _forms(text: str) -> set[str]:
    folded = fold(text)
    return {folded, *(folded[:at] + folded[at + 1 :] for at in range(len(folded)))}


def renamed(sql: str, entity: Entity, naming: Naming) -> str:
    """`sql` as it finds the row by `naming`; after a first query for the name as asked, where that finds nothing."""
    found = sql.replace(name_is(entity), naming.condition)
    if not naming.misses:
        return found
    first = sql.partition("; ")[0].replace(name_is(entity), f"{NAME_COLUMNS[entity.table]} = {quoted(naming.asked)}")
    return f"{first}; {found}"
