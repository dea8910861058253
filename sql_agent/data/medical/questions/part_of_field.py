"""Questions about a part of one cell: the items that concern something."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from itertools import pairwise

from sql_agent.data.medical.questions.all_but import all_but
from sql_agent.data.medical.questions.catalog import Entity
from sql_agent.data.medical.questions.draft import Draft, Source, cell_draft
from sql_agent.data.medical.questions.topics import topic_readers

# A longer cell is too much to read for one item of it.
MAX_CELL = 20
# From how many items on a cell has many.
MANY_ITEMS = 5
TWO_TOPICS = "two topics"


def part_of_field(source: Source) -> Iterator[Draft]:
    """Yield the items of a cell that concern a topic or one of two, or all but some, where there are others too."""
    yield from all_but(source)
    readers = topic_readers(source)
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
