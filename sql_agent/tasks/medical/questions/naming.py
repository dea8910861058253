"""Which name a question uses for a row, and which statements lead from that name to the row."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial

from sql_agent.database.name_index import Name, NameIndex, called_otherwise, comparable
from sql_agent.database.schema import fold
from sql_agent.tasks.medical.banks import NameForms
from sql_agent.tasks.medical.questions.catalog import Catalog, Entity, EntityKey
from sql_agent.tasks.medical.questions.draft import in_list, name_is, quoted
from sql_agent.tasks.medical.questions.other_names import OtherNames, aliases_of
from sql_agent.tasks.medical.tables import INITIAL_COLUMNS, NAME_COLUMNS, SCHEMA

# Of the questions that name one row: how many write the name in a way that the database does not.
OTHER_NAME_SHARE = 0.5
# Of those: how many find a part of a name with LIKE at once, and how many misses are of LIKE.
LIKE_AT_ONCE_SHARE = 0.5
LIKE_MISS_SHARE = 0.25
# Of the others: how many look the name up with LIKE.
LIKE_SHARE = 0.3
# As many names as a hint shows; an abbreviation may mean any of them, and the nearest comes first.
_NAMES_SHOWN = 3
# Of one kind of name; each costs a few milliseconds with a large database.
_TEXTS_TRIED = 3

Ways = Callable[[Entity], Iterable[str]]


@dataclass(frozen=True)
class Mention:
    """`asked` stands in the question. The last of `conditions` finds the row, and those before it find nothing: their
    hints, or what people know, lead to the last."""

    asked: str
    conditions: tuple[str, ...]

    @property
    def misses(self) -> bool:
        """Return whether a first query finds nothing."""
        return len(self.conditions) > 1


class Namer:
    """Chooses how a question names a row: as the database does, or in one of the ways of `OtherNames`."""

    def __init__(self, catalog: Catalog, names: NameForms) -> None:
        self._catalog = catalog
        self._others = OtherNames(names, catalog.lang)
        self._index = NameIndex(names_of(catalog))
        self._initials = _initials(catalog)

    def choose(self, entity: Entity, rng: random.Random) -> Mention:
        """Return how one question names `entity`."""
        if rng.random() < OTHER_NAME_SHARE:
            others = self._others
            weighted: list[tuple[float, Ways]] = [
                (3.0, others.shortened),
                (3.0, others.abbreviated),
                (2.0, others.lengthened),
                (2.0, others.aliases),
                (3.0, others.called),
                (1.5, partial(others.misspelt, rng=rng)),
            ]
            # The weighted order of Efraimidis and Spirakis.
            for _, ways in sorted(weighted, key=lambda kind: -(rng.random() ** (1 / kind[0]))):
                known = ways == others.called
                texts = list(ways(entity))
                rng.shuffle(texts)
                for asked in texts[:_TEXTS_TRIED]:
                    if naming := self._lead(entity, asked, rng, known=known):
                        return naming
        return self._as_written(entity, rng)

    def leads_to(self, entity: Entity, text: str) -> bool:
        """Return whether `text` finds nothing as a name, and the hint then offers the name of this row alone."""
        found = self._index.find(text)
        offered = _offered((*found.aliases, *found.longer, *found.near), entity.table)
        return not found.exact and offered == [entity.name]

    def _as_written(self, entity: Entity, rng: random.Random) -> Mention:
        """Return the name of the database, or in small letters, which LIKE takes for the same."""
        lower = entity.name[0].lower() + entity.name[1:]
        asked = lower if entity.name[1:].islower() and rng.random() < 0.5 else entity.name
        if (asked != entity.name or rng.random() < LIKE_SHARE) and self._rows(entity, entity.name) == [entity.row_id]:
            return Mention(asked, (_like(entity, asked),))
        return Mention(entity.name, (name_is(entity),))

    def _lead(self, entity: Entity, asked: str, rng: random.Random, *, known: bool) -> Mention | None:
        """Return the way from `asked` to the row; None where there is none, or `asked` may as well mean another row.

        A name that is `known` needs no hint.
        """
        rows, equal = self._rows(entity, asked), f"{NAME_COLUMNS[entity.table]} = {quoted(asked)}"
        found = self._index.find(asked)
        others = self._initials.get(fold(asked), set()) - {entity.key}
        if found.exact or others or rows not in ([], [entity.row_id]):
            return None
        if rows:
            like = _like(entity, asked)
            return Mention(asked, (like,) if rng.random() < LIKE_AT_ONCE_SHARE else (equal, like))
        miss = _like(entity, asked) if rng.random() < LIKE_MISS_SHARE else equal
        offered = _offered((*found.aliases, *found.longer, *found.near), entity.table)
        perhaps = _offered(found.abbreviated, entity.table)[:_NAMES_SHOWN]
        meant = offered == [entity.name] or (not offered and perhaps[:1] == [entity.name])
        return Mention(asked, (miss, name_is(entity))) if meant or (known and not offered) else None

    def _rows(self, entity: Entity, part: str) -> list[int]:
        """Return the rows whose name holds `part`."""
        rows = self._catalog.rows_with(entity.table, NAME_COLUMNS[entity.table], part)
        return [row.row_id for row in rows]


def names_of(catalog: Catalog) -> Iterator[tuple[str, Name]]:
    """Yield what `NameIndex` takes: as the database itself finds them, without opening it."""
    for table, rows in catalog.rows.items():
        names = {comparable(row.name): Name(row.name, table, NAME_COLUMNS[table]) for row in rows}
        for row in rows:
            yield from ((text, names[comparable(row.name)]) for text in (row.name, *aliases_of(row)))
        yield from called_otherwise(names, SCHEMA.names[table])


def _initials(catalog: Catalog) -> dict[str, set[EntityKey]]:
    """Return the rows by the initials that the database itself gives them: ATS is 氨肽素, whatever else it may mean."""
    found: dict[str, set[EntityKey]] = {}
    for table, column in INITIAL_COLUMNS.items():
        for row in catalog.rows[table]:
            if initials := row.values.get(column):
                found.setdefault(fold(initials), set()).add(row.key)
    return found


def _offered(names: Iterable[Name], table: str) -> list[str]:
    return list(dict.fromkeys(name.text for name in names if name.table == table))


def _like(entity: Entity, part: str) -> str:
    return f"{NAME_COLUMNS[entity.table]} LIKE {quoted(f'%{part}%')}"


def renamed(sql: str, entity: Entity, naming: Mention) -> str:
    """Return `sql` as it finds the row by `naming`, after the statements that find nothing."""
    *misses, last = naming.conditions
    first = sql.partition("; ")[0]
    statements = [first.replace(name_is(entity), miss) for miss in misses]
    return "; ".join([*statements, sql.replace(name_is(entity), last)])


def renamed_pair(sql: str, pair: tuple[Entity, Entity], namings: Sequence[Mention]) -> str:
    """Return `sql` for two rows of `name IN (…)`, after the statements that find nothing for the names as asked."""
    column = NAME_COLUMNS[pair[0].table]
    both = f"{column} IN {in_list(entity.name for entity in pair)}"
    missed = [naming for naming in namings if naming.misses]
    statements = [sql.replace(both, naming.conditions[0]) for naming in missed]
    if 0 < len(missed) < len(pair):
        # The one whose name is right comes out of the first query, which is why the other one is looked for.
        statements.insert(0, sql.replace(both, f"{column} IN {in_list(naming.asked for naming in namings)}"))
    if missed or all(naming.asked == entity.name for naming, entity in zip(namings, pair, strict=True)):
        return "; ".join([*statements, sql])
    return sql.replace(both, " OR ".join(naming.conditions[-1] for naming in namings))
