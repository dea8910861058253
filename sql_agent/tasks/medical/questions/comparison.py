"""Questions that set one field of two drugs, or of two diseases, side by side."""

from __future__ import annotations

import re
from collections.abc import Iterator

from sql_agent.tasks.medical.questions.catalog import Entity
from sql_agent.tasks.medical.questions.draft import Corpus, Draft, evidence, named_rows_sql

MAX_ITEMS_EACH = 4
# Marks that have a meaning of their own inside a fact "Name: item, item".
_MARKS = re.compile(r"[:：,，、]")


def comparison(source: Corpus) -> Iterator[Draft]:
    """Pairs of neighbours in a shuffled order, so that each field of each entity is used about once."""
    for tables in source.by_split.values():
        for table, entities in tables.items():
            for column in source.columns(table):
                short = [(entity, items) for entity in entities if (items := short_items(source, entity, column))]
                source.rng.shuffle(short)
                del short[source.wanted // 2 :]
                for (one, items), (other, other_items) in zip(short, short[1:] + short[:1], strict=True):
                    if items != other_items:
                        yield _draft(source, column, {one: items, other: other_items})


def short_items(source: Corpus, entity: Entity, column: str) -> list[str]:
    """Return the items of a field, or [] when they are too many or too long to stand beside those of another row."""
    items = source.catalog.items(entity, column)
    length = sum(map(len, items)) + len(entity.name)
    fits = len(items) <= MAX_ITEMS_EACH and length <= 0.45 * source.max_answer
    return items if fits and not any(map(_MARKS.search, items)) else []


def _draft(source: Corpus, column: str, items: dict[Entity, list[str]]) -> Draft:
    one, other = items
    marks = source.wording.marks
    facts = [f"{entity.name}{marks.name}{marks.item.join(texts)}" for entity, texts in items.items()]
    named = source.named_by(text for texts in items.values() for text in texts)
    return Draft(
        task_type="comparison",
        pool="comparison",
        column=(one.table, column),
        slots={"name": one.name, "other": other.name},
        sql=named_rows_sql((one, other), column),
        answer=marks.fact.join(facts),
        evidence=tuple(evidence(entity, column, text) for entity, texts in items.items() for text in texts),
        entities=frozenset({one.key, other.key}) | named,
        bucket=source.bucket(f"{one.table}.{column}", [text for texts in items.values() for text in texts]),
        pair=(one, other),
    )
