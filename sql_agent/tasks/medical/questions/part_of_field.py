"""Questions about a part of one cell: items that concern something, that are of a kind, or the first ones."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import pairwise

from sql_agent.tasks.medical.banks import KindAsks
from sql_agent.tasks.medical.questions.all_but import all_but
from sql_agent.tasks.medical.questions.catalog import Entity
from sql_agent.tasks.medical.questions.draft import Corpus, Draft, cell_draft
from sql_agent.tasks.medical.questions.topics import kind_readers, topic_readers

# A longer cell is too much to read for one item of it, and a longer item is a paragraph that speaks of many things.
MAX_CELL = 20
MAX_ITEM = {"en": 90, "zh": 40}
# From how many items on a cell has many.
MANY_ITEMS = 5
# How often a part is asked for by sentences that fit no other, where there are some.
OWN_SHARE = 0.3
# How many items a cell has at least of which the first or last are asked for.
LEAST_IN_ORDER = 3


def part_of_field(source: Corpus) -> Iterator[Draft]:
    """Yield parts of cells: what concerns a topic, is of a kind or is not, all but some, the first or last items."""
    yield from all_but(source)
    yield from _by_topic(source)
    yield from _by_kind(source)
    yield from _by_position(source)


def _by_topic(source: Corpus) -> Iterator[Draft]:
    """Yield the items that concern a topic or one of two, where there are others too."""
    bank, readers = source.natural.topics, topic_readers(source)
    for row, column, items in _lists(source, bank.asks):
        topics = bank.asks[row.table][column].topics
        found = {name: about for name in topics if (about := readers[name].about(items))}
        for name, about in found.items():
            said = source.rng.choice(bank.topics[name].said)
            yield from _part(source, row, column, items, about, pool=f"topic {name}", kind=name, said=said)
        for first, second in pairwise(found):
            about = [item for item in items if item in found[first] or item in found[second]]
            one, other = (source.rng.choice(bank.topics[name].said) for name in (first, second))
            said = source.rng.choice(bank.both).format(one=one, other=other)
            yield from _part(source, row, column, items, about, pool="topics", kind="two topics", said=said)


def _by_kind(source: Corpus) -> Iterator[Draft]:
    """Yield the items of a kind, and all others of the same cell."""
    bank, readers = source.natural.kinds, kind_readers(source)
    for row, column, items in _lists(source, bank.asks):
        asks = bank.asks[row.table][column]
        for name in asks.kinds:
            if about := readers[name].about(items):
                kind = bank.kinds[name]
                pool = f"kind {name}" if name in asks.own and source.rng.random() < OWN_SHARE else "part_kind"
                said = source.rng.choice(kind.said)
                yield from _part(source, row, column, items, about, pool=pool, kind=f"of kind {name}", said=said)
                others = [item for item in items if item not in about]
                pool, said = _rest(source, asks, name)
                yield from _part(source, row, column, items, others, pool=pool, kind=f"not of kind {name}", said=said)


def _rest(source: Corpus, asks: KindAsks, name: str) -> tuple[str, str]:
    """Return the sentences for all items that are not of a kind, and what these call {topic}."""
    kind = source.natural.kinds.kinds[name]
    if name in asks.own_rest and source.rng.random() < OWN_SHARE:
        return f"rest {name}", kind.said[0]
    if kind.rest and source.rng.random() < 0.5:
        return "part_kind", source.rng.choice(kind.rest)
    return "all_but_kind", source.rng.choice(kind.said)


def _by_position(source: Corpus) -> Iterator[Draft]:
    """Yield the first or the last items of a cell."""
    for row, column, items in _lists(source, {table: source.columns(table) for table in source.catalog.rows}):
        position = source.rng.choice(source.natural.kinds.positions)
        if len(items) >= max(LEAST_IN_ORDER, abs(position.count) + 1):
            part = items[: position.count] if position.count > 0 else items[position.count :]
            said = source.rng.choice(position.said)
            yield from _part(source, row, column, items, part, pool="part_position", kind="place", said=said)


def _lists(source: Corpus, columns: Mapping[str, Iterable[str]]) -> Iterator[tuple[Entity, str, list[str]]]:
    """Yield the cells of `columns`, by table, that hold several items and can still be read, with their items."""
    for table, of_table in columns.items():
        for row in source.rows_for_fields(table):
            for column in of_table:
                items = source.catalog.items(row, column)
                if 1 < len(items) <= MAX_CELL and max(map(len, items)) <= MAX_ITEM[source.catalog.lang]:
                    yield row, column, items


def _part(
    source: Corpus,
    row: Entity,
    column: str,
    items: Sequence[str],
    part: list[str],
    *,
    pool: str,
    kind: str,
    said: str,
) -> Iterator[Draft]:
    """Yield the draft for a part of a cell, unless it is the whole cell or too long."""
    if len(part) == len(items) or not source.fits(part):
        return
    # Most parts are one item of a few. Without a bucket of their own, several of many would hardly come.
    size = "one" if len(part) == 1 else f"several of {'many' if len(items) >= MANY_ITEMS else 'few'}"
    bucket = f"{column}, {kind}, {size}"
    draft = cell_draft(source, row, column, part, task_type="part_of_field", pool=pool, bucket=bucket)
    yield replace(draft, slots={**draft.slots, "topic": said})
