"""Questions that go through one row to another: from a disease to its drugs, from a drug to its disease."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from sql_agent.data.medical.questions.catalog import Entity, holds_item
from sql_agent.data.medical.questions.comparison import short_items
from sql_agent.data.medical.questions.draft import Draft, Source, evidence, in_list, name_is
from sql_agent.data.medical.schema import NAME_COLUMNS

# With more drugs the answer is too long.
MAX_DRUGS = 3


def two_hops(source: Source) -> Iterator[Draft]:
    """Yield questions of which the first statement reads which row is meant, the second one its column."""
    for relation in source.relations:
        if relation.pool == "treatment_to_drugs" and len(relation.drugs) <= MAX_DRUGS:
            yield from _hops(source, relation.disease, "treatment", relation.drugs)
    for drug in source.some("drugs_info"):
        text = drug.values.get("indication") or ""
        # Names inside longer ones, as 头痛 in 偏头痛, leave open which disease is meant.
        found = {row.key: row for row, _ in source.catalog.names_in("disease", text)}
        if len(found) == 1:
            (disease,) = found.values()
            if disease.askable and holds_item(text, disease.name):
                yield from _hops(source, drug, "indication", (disease,))


def _hops(source: Source, start: Entity, through: str, ends: Sequence[Entity]) -> Iterator[Draft]:
    table = ends[0].table
    for column in source.natural.patterns.clauses[table]:
        if column not in source.catalog.columns[table]:
            continue
        items = {end: _items(source, end, column, alone=len(ends) == 1) for end in ends}
        answer = _answer(source, items)
        if not all(items.values()) or len(answer) > source.max_answer:
            continue
        wanted = f"{NAME_COLUMNS[table]}, {column}"
        which = name_is(ends[0]) if len(ends) == 1 else f"{NAME_COLUMNS[table]} IN {in_list(end.name for end in ends)}"
        first = f"SELECT {through} FROM {start.table} WHERE {name_is(start)}"
        yield Draft(
            task_type="two_hops",
            pool=f"two_hops_{start.table}",
            column=(table, column),
            slots={"name": start.name},
            sql=f"{first}; SELECT {wanted} FROM {table} WHERE {which}",
            answer=answer,
            evidence=tuple(evidence(end, column, item) for end, texts in items.items() for item in texts),
            entities=frozenset({start.key, *(end.key for end in ends)})
            | source.named_by(item for texts in items.values() for item in texts),
            bucket=source.bucket(f"{start.table}, {column}, {len(ends)}", max(items.values(), key=len)),
            subject=start,
            unsaid=tuple(end.name for end in ends),
        )


def _items(source: Source, end: Entity, column: str, *, alone: bool) -> list[str]:
    if not alone:
        return short_items(source, end, column)
    items = source.catalog.items(end, column)
    return items if len(items) <= source.max_items else []


def _answer(source: Source, items: dict[Entity, list[str]]) -> str:
    """Return the items of one row; of several rows as in a comparison."""
    if len(items) == 1:
        return source.separator.join(*items.values())
    marks = source.wording.marks
    return marks.fact.join(f"{end.name}{marks.name}{marks.item.join(texts)}" for end, texts in items.items())
