"""Questions about rows that meet two conditions, and about any three of many."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from functools import lru_cache

from sql_agent.tasks.medical.questions.catalog import Entity
from sql_agent.tasks.medical.questions.draft import (
    LISTS,
    Condition,
    Corpus,
    Draft,
    TaskType,
    cell_draft,
    name_evidence,
)
from sql_agent.tasks.medical.questions.keywords import (
    Match,
    contains,
    either,
    holds,
    keywords_of,
    matches,
    one_of,
)
from sql_agent.tasks.medical.tables import NAME_COLUMNS

ENOUGH = 3
# Of each row.
_PAIRS_TRIED = 2


def two_conditions(source: Corpus) -> Iterator[Draft]:
    """Yield rows whose columns hold one keyword and another one; each of the two alone finds more rows."""
    found = lru_cache(maxsize=None)(source.catalog.rows_with)
    for first, second in pairs(source):
        # The rarer one first: most pairs of common ones share too many rows, or rows that cannot be named.
        fewest, _ = sorted((found(part.table, part.column, part.keyword) for part in (first, second)), key=len)
        both = [row for row in fewest if contains(row, first) and contains(row, second)]
        clear = all(row.askable and holds(source, row, first) and holds(source, row, second) for row in both)
        if 0 < len(both) < len(fewest) and clear:
            yield from search_of(source, "two_conditions", both, (first, second))


def pairs(source: Corpus, columns: Mapping[str, Sequence[str]] | None = None) -> Iterator[tuple[Condition, Condition]]:
    """Yield conditions on two columns, of `columns` by table if given, that one row meets, as common as among rows."""
    for table, predicates in source.natural.patterns.predicates.items():
        said = [column for column in predicates if columns is None or column in columns[table]]
        for row in source.some(table):
            held = {column: words for column in said if (words := keywords_of(source, row, column))}
            for _ in range(_PAIRS_TRIED if len(held) > 1 else 0):
                one, other = (
                    Condition(table, column, one_of(source, held[column]))
                    for column in source.rng.sample(sorted(held), 2)
                )
                yield one, other


def any_of(source: Corpus) -> Iterator[Draft]:
    """Any three of the items of a cell, or of the rows that hold a keyword, or one of two."""
    found = list(searches(source))
    for condition, rows in (*found, *either(source, found)):
        if len(rows) > ENOUGH:
            yield from search_of(source, "any_of", rows, (condition,), enough=ENOUGH)
    for table, columns in LISTS.items():
        for entity in source.some(table):
            for column in columns:
                items = source.catalog.items(entity, column)
                if len(items) > ENOUGH and source.fits(items):
                    draft = cell_draft(
                        source, entity, column, items,
                        task_type="any_of", pool="any_of_items", bucket=f"items, {column}",
                    )  # fmt: skip
                    yield replace(draft, enough=ENOUGH)


def searches(source: Corpus) -> Iterator[Match]:
    """Keywords with the rows that hold them, where people have words for the column."""
    for condition, rows in matches(source):
        if condition.column in source.natural.patterns.predicates[condition.table]:
            yield condition, rows


def other_conditions(source: Corpus, first: Condition, rows: list[Entity]) -> Iterator[Condition]:
    """Yield a few conditions on other columns that at least one of `rows` meets."""
    columns = [
        column
        for column in source.natural.patterns.predicates[first.table]
        if column != first.column and column in source.catalog.columns[first.table]
    ]
    for column in source.rng.sample(columns, min(2, len(columns))):
        if words := [word for row in rows for word in keywords_of(source, row, column)]:
            yield Condition(first.table, column, one_of(source, words))


def search_of(
    source: Corpus,
    task_type: TaskType,
    rows: list[Entity],
    conditions: tuple[Condition, ...],
    enough: int | None = None,
) -> Iterator[Draft]:
    """Yield the question for the names of `rows`, when they are few enough to list."""
    names = [row.name for row in rows]
    if not source.fits(names):
        return
    table = rows[0].table
    yield Draft(
        task_type=task_type,
        pool=task_type,
        column=None,
        slots={"rows": source.wording.rows[table]},
        sql=f"SELECT {NAME_COLUMNS[table]} FROM {table} WHERE {' AND '.join(part.sql for part in conditions)}",
        answer=source.separator.join(names),
        evidence=name_evidence(rows),
        entities=frozenset(row.key for row in rows)
        | source.mentioned(word for part in conditions for word in part.keywords),
        bucket=f"rows, {table}, {'either' if conditions[0].other else conditions[-1].column}, {min(len(rows), 3)}",
        conditions=conditions,
        enough=enough,
    )
