"""Questions about one field of one drug or disease."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial

from sql_agent.tasks.medical.questions.all_but import whole_with_one
from sql_agent.tasks.medical.questions.catalog import Entity
from sql_agent.tasks.medical.questions.draft import Corpus, Draft, TaskType, cell_draft
from sql_agent.tasks.medical.questions.topics import TopicReader, kind_readers

# Of the cells: of how many one item, or one kind of items, is named in a question for the whole cell.
WITH_ONE_SHARE = 0.15


def _fields(task_type: TaskType, table: str, source: Corpus) -> Iterator[Draft]:
    readers = kind_readers(source) if source.banks else {}
    for entity in source.rows_for_fields(table):
        for column in source.columns(table):
            items = source.catalog.items(entity, column)
            if source.fits(items):
                bucket = source.bucket(column, items)
                whole = cell_draft(source, entity, column, items, task_type=task_type, pool=task_type, bucket=bucket)
                yield whole
                if source.banks and source.rng.random() < WITH_ONE_SHARE:
                    with_one = whole_with_one(source, entity, column, items, task_type)
                    yield from () if with_one is None else (with_one,)
                    yield from _with_kind(source, readers, whole, entity, items)


def _with_kind(
    source: Corpus, readers: Mapping[str, TopicReader], whole: Draft, row: Entity, items: Sequence[str]
) -> Iterator[Draft]:
    """Yield the draft for a whole cell again, mentioning a kind of which only some of its items are."""
    asked = source.natural.kinds.asks[row.table]
    kinds = asked[whole.evidence[0].field].kinds if whole.evidence[0].field in asked else ()
    names = [name for name in kinds if 0 < len(readers[name].about(items) or ()) < len(items)]
    if names:
        said = source.rng.choice(readers[source.rng.choice(names)].said)
        bucket = source.bucket("with kind", items)
        yield replace(whole, pool="whole_with_kind", bucket=bucket, slots={**whole.slots, "topic": said}, formal=False)


drug_field = partial(_fields, "drug_field", "drugs_info")
disease_field = partial(_fields, "disease_field", "disease")
