"""Questions that name an item of a cell: for all the others, or for the whole cell with that one."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace

from sql_agent.database.schema import fold
from sql_agent.tasks.medical.questions.catalog import Entity
from sql_agent.tasks.medical.questions.draft import LISTS, Corpus, Draft, TaskType, cell_draft, is_keyword
from sql_agent.tasks.medical.questions.topics import TopicReader, topic_readers

# How many items a cell has at least, so that one of them is not nearly all.
LEAST_ITEMS = 3
# How often an item is said in everyday words, where there are some.
EVERYDAY_SHARE = 0.5
# The columns of which a topic is one of the body: "besides the skin".
_OF_THE_BODY = ("adverse_reactions", "clinical_manif", "complication")


def all_but(source: Corpus) -> Iterator[Draft]:
    """Yield the items of a cell but for one that the question names, or but for those that concern a topic."""
    readers = topic_readers(source)
    for table, columns in LISTS.items():
        for row in source.rows_for_fields(table):
            for column in columns:
                items = source.catalog.items(row, column)
                if len(items) >= LEAST_ITEMS:
                    yield from _but_one(source, row, column, items)
                    if column in _OF_THE_BODY:
                        yield from _but_a_topic(source, readers, row, column, items)


def whole_with_one(source: Corpus, row: Entity, column: str, items: Sequence[str], task_type: TaskType) -> Draft | None:
    """Return a draft for the whole cell that names one of its items, which is part of the answer; None without one."""
    item = _nameable(source, row, items)
    if item is None or column not in LISTS[row.table] or len(items) < LEAST_ITEMS:
        return None
    draft = cell_draft(
        source, row, column, items,
        task_type=task_type, pool="whole_with_one", bucket=source.bucket("with one", items),
    )  # fmt: skip
    return _naming(
        source, draft, {"item": source.said(item, EVERYDAY_SHARE)}, [other for other in items if other != item]
    )


def _but_one(source: Corpus, row: Entity, column: str, items: list[str]) -> Iterator[Draft]:
    item = _nameable(source, row, items)
    others = [other for other in items if other != item]
    if item is not None and source.fits(others):
        yield _but(source, row, column, others, item=source.said(item, EVERYDAY_SHARE))


def _but_a_topic(
    source: Corpus, readers: Mapping[str, TopicReader], row: Entity, column: str, items: list[str]
) -> Iterator[Draft]:
    topics = source.natural.topics
    for name in topics.asks[row.table][column].topics:
        about = readers[name].about(items)
        others = [item for item in items if item not in (about or ())]
        if about and source.fits(others):
            said = source.rng.choice(topics.topics[name].said)
            yield _but(source, row, column, others, topic=said)


def _but(source: Corpus, row: Entity, column: str, others: list[str], **slots: str) -> Draft:
    pool = "all_but_topic" if "topic" in slots else "all_but"
    draft = cell_draft(
        source, row, column, others,
        task_type="part_of_field", pool=pool, bucket=source.bucket(f"{pool}, {column}", others),
    )  # fmt: skip
    return _naming(source, draft, slots, others)


def _naming(source: Corpus, draft: Draft, slots: dict[str, str], others: Sequence[str]) -> Draft:
    """Return `draft` with what it names; a text with one of the `others` would give a part of the answer away."""
    named = source.named_by(slots.values())
    return replace(
        draft,
        slots={**draft.slots, **slots},
        entities=draft.entities | named,
        unsaid=tuple(other for other in others if fold(other) not in fold(draft.slots["name"])),
    )


def _nameable(source: Corpus, row: Entity, items: Sequence[str]) -> str | None:
    """Return an item that a question can say, and that is no part of another one, nor another one of it."""
    plain = [item for item in items if is_keyword(item, source.catalog.lang) and fold(item) not in fold(row.name)]
    apart = [
        item
        for item in plain
        if not any(fold(item) in fold(other) or fold(other) in fold(item) for other in items if other != item)
    ]
    return source.rng.choice(apart) if apart else None
