"""Questions about one field of one drug or disease."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

from sql_agent.data.medical.questions.draft import MAX_ITEMS, Draft, Source, TaskType, evidence, name_is


def _fields(task_type: TaskType, table: str, source: Source) -> Iterator[Draft]:
    for entity in source.some(table):
        for column in source.columns(table):
            items = source.catalog.items(entity, column)
            answer = source.separator.join(items)
            if not items or len(items) > MAX_ITEMS or len(answer) > source.max_answer:
                continue
            yield Draft(
                task_type=task_type,
                pool=task_type,
                column=(table, column),
                slots={"name": entity.name},
                sql=f"SELECT {column} FROM {table} WHERE {name_is(entity)}",
                answer=answer,
                evidence=tuple(evidence(entity, column, item) for item in items),
                entities=frozenset({entity.key}) | source.named_by(items),
                bucket=column,
                subject=entity,
            )


drug_field = partial(_fields, "drug_field", "drugs_info")
disease_field = partial(_fields, "disease_field", "disease")
