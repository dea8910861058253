"""Questions about a part of one cell: the items that concern something, and whether one item stands there."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import replace
from itertools import pairwise

from sql_agent.data.medical.banks import spoken
from sql_agent.data.medical.questions.all_but import all_but
from sql_agent.data.medical.questions.catalog import Entity
from sql_agent.data.medical.questions.draft import Draft, Source, cell_draft, evidence, name_is
from sql_agent.data.medical.questions.topics import TopicReader
from sql_agent.database.schema import fold

# A longer cell is too much to read for one item of it.
MAX_CELL = 20
# From how many items on a cell has many.
MANY_ITEMS = 5
TWO_TOPICS = "two topics"
# How many other items are tried before a cell has none that it clearly lacks.
TRIES = 20
# How many questions for one item ask for one that people can say in their own words, where there is one; and of those,
# how many say it so.
EVERYDAY_SHARE = 0.7
# What can be asked for by name: no sentence ("孕妇禁用").
_PLAIN = {
    "en": re.compile(r"[a-z][a-z -]{3,22}"),
    "zh": re.compile(r"(?!.*(?:[禁忌慎等者的尚见勿]|不明|不清|未明))[一-鿿]{2,6}"),
}
_WORD = re.compile(r"[a-z]{4,}|[一-鿿]")


def part_of_field(source: Source) -> Iterator[Draft]:
    """Yield the items of a cell that concern a topic or one of two, or all but some, where there are others too."""
    yield from all_but(source)
    readers = _readers(source)
    for table, columns in source.natural.topics.asks.items():
        for entity in source.some(table):
            for column, asks in columns.items():
                items = source.catalog.items(entity, column)
                if 1 < len(items) <= MAX_CELL:
                    found = {name: about for name in asks.topics if (about := readers[name].about(items))}
                    for topics in (*((name,) for name in found), *pairwise(found)):
                        about = [item for item in items if any(item in found[name] for name in topics)]
                        if len(about) < len(items) and source.fits(about):
                            yield _part(source, entity, column, topics, about, held=len(items))


def _readers(source: Source) -> dict[str, TopicReader]:
    return {name: TopicReader(topic) for name, topic in source.natural.topics.topics.items()}


def _part(
    source: Source, entity: Entity, column: str, topics: tuple[str, ...], about: list[str], *, held: int
) -> Draft:
    """Return the draft for the items about one topic, or about two, for which no topic's own sentences can ask."""
    bank = source.natural.topics
    kind = topics[0] if len(topics) == 1 else TWO_TOPICS
    # Most parts are one item of a few. Without a bucket of their own, several of many would hardly come.
    size = "one" if len(about) == 1 else f"several of {'many' if held >= MANY_ITEMS else 'few'}"
    draft = cell_draft(
        source,
        entity,
        column,
        about,
        task_type="part_of_field",
        pool=f"part_of_field {kind}",
        bucket=f"{column}, {kind}, {size}",
    )
    one, *others = (source.rng.choice(bank.topics[name].said) for name in topics)
    said = source.rng.choice(bank.both).format(one=one, other=others[0]) if others else one
    return replace(draft, slots={**draft.slots, "topic": said})


def yes_no(source: Source) -> Iterator[Draft]:
    """Yield whether a cell lists an item: one that it holds, or one that it has nothing like, as many of either."""
    for table, columns in source.natural.patterns.yes_no.items():
        for column in columns:
            if column in source.catalog.columns[table]:
                yield from _yes_no(source, table, column)


def _yes_no(source: Source, table: str, column: str) -> Iterator[Draft]:
    plain, readers = _PLAIN[source.catalog.lang], list(_readers(source).values())
    entities = source.some(table)
    held = {row: source.catalog.items(row, column) for row in entities}
    # Items as often as rows have them: a "no" is about what is asked elsewhere, so that the item gives nothing away.
    pool = [item for items in held.values() for item in items if plain.fullmatch(item)]
    everyday = [item for item in pool if _has_other_words(source, item)]
    for entity, items in held.items():
        if not 0 < len(items) <= MAX_CELL:
            continue
        candidates = [
            item
            for item in items
            if plain.fullmatch(item) and _stands_once(item, items) and fold(item) not in fold(entity.name)
        ]
        absent = next(
            (item for item in _some_of(source, pool, everyday) if _clearly_absent(source, readers, item, items)), None
        )
        if candidates and absent:
            others = [item for item in candidates if _has_other_words(source, item)]
            present = next(_some_of(source, candidates, others))
            yield _decide(source, entity, column, present, items, holds=True)
            yield _decide(source, entity, column, absent, items, holds=False)


def _said(source: Source, item: str) -> str:
    """Return how the question says `item`: most often in everyday words, where there are some."""
    formal, *everyday = spoken(source.natural, item)
    return source.rng.choice(everyday) if everyday and source.rng.random() < EVERYDAY_SHARE else formal


def _has_other_words(source: Source, item: str) -> bool:
    return len(spoken(source.natural, item)) > 1


def _some_of(source: Source, pool: list[str], everyday: list[str]) -> Iterator[str]:
    """Items of `pool`, most of them from `everyday`, which people can say in their own words."""
    for _ in range(TRIES if pool else 0):
        yield source.rng.choice(everyday if everyday and source.rng.random() < EVERYDAY_SHARE else pool)


def _stands_once(item: str, items: list[str]) -> bool:
    return sum(fold(item) in fold(other) for other in items) == 1


def _clearly_absent(source: Source, readers: list[TopicReader], item: str, items: list[str]) -> bool:
    """Return whether no item of the cell shares a word, or in Chinese a character, or a topic with `item`."""
    words = _words(source, item)
    if any(words & _words(source, other) for other in items):
        return False
    return all(reader.about(items) == [] for reader in readers if reader.concerns(item))


def _words(source: Source, item: str) -> set[str]:
    return set(_WORD.findall(fold(" ".join(spoken(source.natural, item)))))


def _decide(source: Source, entity: Entity, column: str, item: str, items: list[str], *, holds: bool) -> Draft:
    """Decide by the evidence, which of a "no" is the whole cell: it was looked into."""
    cell = entity.values[column] or ""
    return Draft(
        task_type="yes_no",
        pool="yes_no",
        column=(entity.table, column),
        slots={"name": entity.name, "item": _said(source, item)},
        sql=f"SELECT {column} FROM {entity.table} WHERE {name_is(entity)}",
        answer=source.wording.yes if holds else source.wording.no,
        evidence=(evidence(entity, column, item if holds else cell),),
        entities=frozenset({entity.key}) | source.named_by([item]),
        bucket=f"{column}, {holds}",
        subject=entity,
        # A text that held another item of the cell by chance would ask for that one too.
        unsaid=tuple(other for other in items if other != item),
    )
