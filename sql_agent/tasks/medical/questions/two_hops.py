"""Questions that go through one row to another: from a disease to its drugs, from a drug to its disease."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import replace

from sql_agent.tasks.medical.questions.catalog import Entity, holds_item
from sql_agent.tasks.medical.questions.comparison import short_items
from sql_agent.tasks.medical.questions.conditions import pairs
from sql_agent.tasks.medical.questions.draft import Corpus, Draft, evidence, name_is, named_rows_sql, quoted
from sql_agent.tasks.medical.questions.keywords import contains, holds
from sql_agent.tasks.medical.tables import NAME_COLUMNS

# With more drugs the answer is too long.
MAX_DRUGS = 3
# By what people describe a row whose name they do not say.
DESCRIBING = {
    "drugs_info": ("cate_name", "indication", "form", "component"),
    "disease": ("clinical_manif", "cause", "complication", "examination"),
}
# Words of a sentence or an amount, which no description has: 用于气阴两亏, 多由结石引起.
_CLAUSE = {
    "zh": re.compile(r"\d|用于|引起|所致|导致|有关|因素|[由与或及可为]|多[为由]"),
    "en": re.compile(r"\d| and | or "),
}


def two_hops(source: Corpus) -> Iterator[Draft]:
    """Yield questions of which the first statement reads which row is meant, the second one its column.

    As many lead to drugs as to diseases; of either, as many name where they start as describe the row.
    """
    treated = {relation.disease for relation in source.relations if relation.pool == "treatment_to_drugs"}
    for relation in source.relations:
        if len(relation.drugs) <= MAX_DRUGS and relation.pool == "treatment_to_drugs":
            yield from _hops(source, relation.disease, "treatment", relation.drugs)
        elif len(relation.drugs) <= MAX_DRUGS and relation.disease not in treated:
            # Only where the disease's own text names no drugs, which "the drug for it" could mean as well.
            for draft in _hops(source, relation.disease, "indication", relation.drugs):
                yield replace(draft, pool="two_hops_indicated", sql=_by_indication(draft, relation.disease))
    for drug in source.some("drugs_info"):
        text = drug.values.get("indication") or ""
        # Names inside longer ones, as 头痛 in 偏头痛, leave open which disease is meant.
        found = {row.key: row for row, _ in source.catalog.names_in("disease", text)}
        if len(found) == 1:
            (disease,) = found.values()
            if disease.askable and holds_item(text, disease.name):
                yield from _hops(source, drug, "indication", (disease,))
    yield from _described(source)


def _by_indication(draft: Draft, disease: Entity) -> str:
    """Return the SQL that finds the drugs by their indications, where the disease's row says nothing of them."""
    _, _, second = draft.sql.partition("; ")
    return f"SELECT med_name FROM drugs_info WHERE indication LIKE {quoted(f'%{disease.name}%')}; {second}"


def _described(source: Corpus) -> Iterator[Draft]:
    """Yield questions about the only row that meets two conditions: a class and a use, or a symptom and a cause."""
    clause = _CLAUSE[source.catalog.lang]
    for first, second in pairs(source, DESCRIBING):
        if clause.search(first.keyword) or clause.search(second.keyword):
            continue
        rows = source.catalog.rows_with(first.table, first.column, first.keyword)
        both = [row for row in rows if contains(row, second)]
        row = both[0]  # from which the two conditions were taken
        if len(both) > 1 or not row.askable or not (holds(source, row, first) and holds(source, row, second)):
            continue
        name_column = NAME_COLUMNS[row.table]
        found = f"SELECT {name_column} FROM {row.table} WHERE {first.sql} AND {second.sql}"
        for draft in _hops(source, row, name_column, (row,)):
            if draft.column and draft.column[1] not in {first.column, second.column}:
                yield replace(
                    draft,
                    pool="two_hops_described",
                    slots={},
                    sql=f"{found}; {draft.sql.partition('; ')[2]}",
                    entities=draft.entities | source.mentioned((first.keyword, second.keyword)),
                    bucket=f"{row.table}/described/{draft.column[1]}",
                    subject=None,
                    conditions=(first, second),
                )


def _hops(source: Corpus, start: Entity, through: str, ends: Sequence[Entity]) -> Iterator[Draft]:
    table = ends[0].table
    for column in source.natural.patterns.clauses[table]:
        if column not in source.catalog.columns[table]:
            continue
        items = {end: _items(source, end, column, alone=len(ends) == 1) for end in ends}
        answer = _answer(source, items)
        if not all(items.values()) or len(answer) > source.max_answer:
            continue
        first = f"SELECT {through} FROM {start.table} WHERE {name_is(start)}"
        yield Draft(
            task_type="two_hops",
            pool=f"two_hops_{start.table}",
            column=(table, column),
            slots={"name": start.name},
            sql=f"{first}; {named_rows_sql(ends, column)}",
            answer=answer,
            evidence=tuple(evidence(end, column, item) for end, texts in items.items() for item in texts),
            entities=frozenset({start.key, *(end.key for end in ends)})
            | source.named_by(item for texts in items.values() for item in texts),
            bucket=source.bucket(f"{table}/named/{through}/{column}, {len(ends)}", max(items.values(), key=len)),
            subject=start,
            unsaid=tuple(end.name for end in ends),
        )


def _items(source: Corpus, end: Entity, column: str, *, alone: bool) -> list[str]:
    if not alone:
        return short_items(source, end, column)
    items = source.catalog.items(end, column)
    return items if len(items) <= source.max_items else []


def _answer(source: Corpus, items: dict[Entity, list[str]]) -> str:
    """Return the items of one row; of several rows as in a comparison."""
    if len(items) == 1:
        return source.separator.join(*items.values())
    marks = source.wording.marks
    return marks.fact.join(f"{end.name}{marks.name}{marks.item.join(texts)}" for end, texts in items.items())
