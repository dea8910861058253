"""Questions that search a field for a keyword: which rows hold it, and how many.

A keyword is a whole item in every row that LIKE finds: '%头痛%' finds 偏头痛 and '%处方药%' finds 非处方药 too, and an
answer that counts those is wrong.
"""

from __future__ import annotations

from collections.abc import Iterator

from sql_agent.data.medical.questions.catalog import Entity, holds_item
from sql_agent.data.medical.questions.draft import (
    Condition,
    Draft,
    Source,
    evidence,
    in_list,
    name_evidence,
    quoted,
)
from sql_agent.data.medical.schema import NAME_COLUMNS
from sql_agent.database.schema import fold

MAX_COUNT = 20
GROUP_SIZES = (3, 4, 5)
# Sentences about the row itself are no place to search for a keyword.
_NOT_SEARCHED = frozenset({"description", "overview"})

Match = tuple[str, str, list[Entity]]


def keyword_search(source: Source) -> Iterator[Draft]:
    """Yield questions about which rows mention a keyword in a field."""
    for column, keyword, rows in matches(source):
        names = [row.name for row in rows]
        if not source.fits(names):
            continue
        table = rows[0].table
        yield Draft(
            task_type="keyword_search",
            pool="keyword_search",
            column=(table, column),
            slots={"keyword": keyword, "rows": source.wording.rows[table]},
            sql=f"SELECT {NAME_COLUMNS[table]} FROM {table} WHERE {column} LIKE {quoted(f'%{keyword}%')}",
            answer=source.separator.join(names),
            evidence=name_evidence(rows),
            entities=frozenset(row.key for row in rows) | source.mentioned([keyword]),
            bucket=f"{table}, {min(len(rows), 3)} rows",
            conditions=(Condition(table, column, keyword),),
        )


def aggregate(source: Source) -> Iterator[Draft]:
    """Yield how many rows mention a keyword in a field: in the whole table, or among a few named rows."""
    for column, keyword, rows in matches(source):
        if len(rows) <= MAX_COUNT:
            yield _count(source, column, keyword, rows, among=[])
    for tables in source.by_split.values():
        for table, entities in tables.items():
            for _ in range(source.wanted):
                if draft := _count_among(source, table, entities):
                    yield draft


def matches(source: Source) -> Iterator[Match]:
    """Keywords taken from the items of fields, each with the rows that LIKE selects for it."""
    keywords: set[tuple[str, str, str]] = set()
    for table in source.catalog.rows:
        columns = _searched(source, table)
        for entity in source.some(table):
            for column in columns:
                items = source.catalog.items(entity, column)
                keywords.update((table, column, item) for item in items if source.is_keyword(item))
    candidates = sorted(keywords)
    source.rng.shuffle(candidates)
    for table, column, keyword in candidates[: 6 * source.wanted]:
        rows = source.catalog.rows_with(table, column, keyword)
        if rows and all(row.askable and is_item(row, column, keyword) for row in rows):
            yield column, keyword, rows


def _searched(source: Source, table: str) -> list[str]:
    return [column for column in source.columns(table) if column not in _NOT_SEARCHED]


def _count_among(source: Source, table: str, entities: list[Entity]) -> Draft | None:
    size = source.rng.choice(GROUP_SIZES)
    columns = _searched(source, table)
    if len(entities) < size or not columns:
        return None
    group = source.rng.sample(entities, size)
    column = source.rng.choice(columns)
    items = [item for entity in group for item in source.catalog.items(entity, column) if source.is_keyword(item)]
    if not items:
        return None
    # The item that most of the group share makes the better question: not every count is 1.
    keyword = max(items, key=lambda item: (len(_holding(group, column, item)), item))
    rows = _holding(group, column, keyword)
    if not all(is_item(row, column, keyword) for row in rows):
        return None
    return _count(source, column, keyword, rows, among=group)


def _holding(group: list[Entity], column: str, keyword: str) -> list[Entity]:
    return [entity for entity in group if fold(keyword) in fold(entity.values.get(column) or "")]


def is_item(row: Entity, column: str, keyword: str) -> bool:
    """Return whether `keyword` is a whole item of the row's column."""
    return holds_item(row.values.get(column) or "", keyword)


def _count(source: Source, column: str, keyword: str, rows: list[Entity], among: list[Entity]) -> Draft:
    table = rows[0].table
    names = [entity.name for entity in among]
    condition = f"{column} LIKE {quoted(f'%{keyword}%')}"
    if among:
        condition = f"{NAME_COLUMNS[table]} IN {in_list(names)} AND {condition}"
    kind = "among" if among else "all"
    return Draft(
        task_type="aggregate",
        pool="aggregate_among" if among else "aggregate",
        column=(table, column),
        slots={
            "keyword": keyword,
            "rows": source.wording.rows[table],
            "names": source.wording.marks.item.join(names),
        },
        sql=f"SELECT COUNT(*) FROM {table} WHERE {condition}",
        answer=str(len(rows)),
        evidence=tuple(evidence(row, column, _as_written(row.values[column] or "", keyword)) for row in rows),
        entities=frozenset(row.key for row in (*rows, *among)) | source.mentioned([keyword]),
        bucket=f"{kind}, {min(len(rows), 4)}",
        conditions=(Condition(table, column, keyword),),
    )


def _as_written(text: str, keyword: str) -> str:
    start = fold(text).index(fold(keyword))
    return text[start : start + len(keyword)]
