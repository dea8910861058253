"""Questions that search a field for a keyword: which rows hold it, and how many."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import chain

from sql_agent.database.schema import fold
from sql_agent.tasks.medical.questions.catalog import Entity
from sql_agent.tasks.medical.questions.draft import (
    Condition,
    Corpus,
    Draft,
    evidence,
    in_list,
    name_evidence,
)
from sql_agent.tasks.medical.questions.keywords import (
    Match,
    contains,
    either,
    holds,
    is_everyday,
    keywords_of,
    matches,
    one_of,
    searched_columns,
)
from sql_agent.tasks.medical.tables import NAME_COLUMNS

MAX_COUNT = 20
GROUP_SIZES = (3, 4, 5)


def keyword_search(source: Corpus) -> Iterator[Draft]:
    """Yield questions about which rows mention a keyword, or one of two, in a field."""
    for condition, rows in _searches(source):
        names = [row.name for row in rows]
        if not source.fits(names):
            continue
        table, column = condition.table, condition.column
        yield Draft(
            task_type="keyword_search",
            pool="keyword_search",
            column=(table, column),
            slots={"keyword": condition.keyword, "rows": source.wording.rows[table]},
            sql=f"SELECT {NAME_COLUMNS[table]} FROM {table} WHERE {condition.sql}",
            answer=source.separator.join(names),
            evidence=name_evidence(rows),
            entities=frozenset(row.key for row in rows) | source.mentioned(condition.keywords),
            bucket=f"{table}, {_kind(source, condition, len(rows))}",
            conditions=(condition,),
            formal=condition.other is None,
        )


def aggregate(source: Corpus) -> Iterator[Draft]:
    """Yield how many rows mention a keyword in a field: in the whole table, or among a few named rows."""
    for condition, rows in _searches(source):
        if len(rows) <= MAX_COUNT:
            yield _count(source, condition, rows, among=[])
    for tables in source.by_split.values():
        for table, entities in tables.items():
            for _ in range(source.wanted):
                if draft := _count_among(source, table, entities):
                    yield draft


def _searches(source: Corpus) -> Iterator[Match]:
    """Yield searches for one keyword, and where people ask in their own words those for one of two."""
    found = list(matches(source))
    return chain(found, either(source, found) if source.banks else ())


def _kind(source: Corpus, condition: Condition, count: int) -> str:
    """Return where a search is counted: as many find one, two, three and more rows, and fewer are for one of two."""
    said = "everyday" if is_everyday(source, condition) else "formal"
    return f"either, {said}" if condition.other else f"{min(count, 4)}, {said}"


def _count_among(source: Corpus, table: str, entities: list[Entity]) -> Draft | None:
    size = source.rng.choice(GROUP_SIZES)
    columns = searched_columns(source, table)
    if len(entities) < size or not columns:
        return None
    group = source.rng.sample(entities, size)
    column = source.rng.choice(columns)
    keywords = [word for entity in group for word in keywords_of(source, entity, column)]
    if not keywords:
        return None
    counts = {word: sum(contains(entity, Condition(table, column, word)) for entity in group) for word in keywords}
    # What most of the group share makes the better question: not every count is 1.
    condition = Condition(
        table, column, one_of(source, [word for word in counts if counts[word] == max(counts.values())])
    )
    rows = [entity for entity in group if contains(entity, condition)]
    return _count(source, condition, rows, among=group) if all(holds(source, row, condition) for row in rows) else None


def _count(source: Corpus, condition: Condition, rows: list[Entity], among: list[Entity]) -> Draft:
    table, column = condition.table, condition.column
    names = [entity.name for entity in among]
    where = f"{NAME_COLUMNS[table]} IN {in_list(names)} AND {condition.sql}" if among else condition.sql
    return Draft(
        task_type="aggregate",
        pool="aggregate_among" if among else "aggregate",
        column=(table, column),
        slots={
            "keyword": condition.keyword,
            "rows": source.wording.rows[table],
            "names": source.wording.marks.item.join(names),
        },
        sql=f"SELECT COUNT(*) FROM {table} WHERE {where}",
        answer=str(len(rows)),
        evidence=tuple(evidence(row, column, _as_written(row.values[column] or "", condition)) for row in rows),
        entities=frozenset(row.key for row in (*rows, *among)) | source.mentioned(condition.keywords),
        bucket=f"among, {min(len(rows), 4)}" if among else _kind(source, condition, len(rows)),
        conditions=(condition,),
        formal=condition.other is None,
    )


def _as_written(text: str, condition: Condition) -> str:
    """Return the first keyword that the text holds, in its spelling."""
    folded = fold(text)
    word = next(word for word in condition.keywords if fold(word) in folded)
    start = folded.index(fold(word))
    return text[start : start + len(word)]
