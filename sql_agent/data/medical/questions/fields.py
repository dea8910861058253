"""Questions about one field of one drug or disease."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

from sql_agent.data.medical.questions.all_but import whole_with_one
from sql_agent.data.medical.questions.draft import Draft, Source, TaskType, cell_draft

# Of the cells: of how many one item is named in a question for the whole cell.
WITH_ONE_SHARE = 0.15


def _fields(task_type: TaskType, table: str, source: Source) -> Iterator[Draft]:
    for entity in source.some(table):
        for column in source.columns(table):
            items = source.catalog.items(entity, column)
            if source.fits(items):
                bucket = source.bucket(column, items)
                yield cell_draft(source, entity, column, items, task_type=task_type, pool=task_type, bucket=bucket)
                if source.banks and source.rng.random() < WITH_ONE_SHARE:
                    with_one = whole_with_one(source, entity, column, items, task_type)
                    yield from () if with_one is None else (with_one,)


drug_field = partial(_fields, "drug_field", "drugs_info")
disease_field = partial(_fields, "disease_field", "disease")
