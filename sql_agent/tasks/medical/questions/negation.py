"""Questions about what rows lack: a keyword, a kind, what a claim says, all in a column, or an item of another row.

Those with two conditions are also asked without the not.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import replace
from itertools import pairwise

from sql_agent.database.schema import fold
from sql_agent.tasks.medical.banks import Banks
from sql_agent.tasks.medical.questions.absent import clearly_absent
from sql_agent.tasks.medical.questions.catalog import Catalog, Entity
from sql_agent.tasks.medical.questions.claimed_rows import WITHOUT_NOT, claimed_rows
from sql_agent.tasks.medical.questions.conditions import other_conditions, search_of, searches
from sql_agent.tasks.medical.questions.draft import (
    LISTS,
    Condition,
    Corpus,
    Draft,
    evidence,
    is_keyword,
    named_rows_sql,
)
from sql_agent.tasks.medical.questions.keywords import Match, contains, holds
from sql_agent.tasks.medical.questions.topics import TopicReader, topic_readers
from sql_agent.tasks.medical.tables import NAME_COLUMNS

# The column that says of which kind a row is, beside its name.
KIND_COLUMNS = {"drugs_info": "cate_name"}
# Of a group of rows that share a class or a part of their name: fewer are no group, of more too many lack something.
MIN_GROUP, MAX_GROUP = 3, 60
# How many columns of a group are looked at for rows that leave them empty.
COLUMNS_TRIED = 3


def negation(source: Corpus) -> Iterator[Draft]:
    """Yield rows that lack a keyword, are not of a kind, of which a claim does not hold, with an empty column, and
    differences."""
    found = [*_groups(source), *searches(source)]
    readers = list(topic_readers(source).values())
    for first, rows in found:
        if first.column not in NAME_COLUMNS.values():
            for second in other_conditions(source, first, rows):
                if _told_by_the_word(source, readers, rows, second):
                    yield from _without(source, "lacks", first, rows, second)
        for second in _kinds(source, first, rows):
            known = all(row.values.get(second.column) for row in rows)
            yield from _without(source, "kinds", first, rows if known else [], second)
        yield from _empty(source, first, rows)
    yield from claimed_rows(source, found)
    for tables in source.by_split.values():
        for table, entities in tables.items():
            for column in LISTS[table]:
                yield from _differences(source, entities, column)


def _told_by_the_word(source: Corpus, readers: list[TopicReader], rows: list[Entity], condition: Condition) -> bool:
    """Return whether all `rows` say something in the column, and those without the keyword do not say it otherwise.

    NOT LIKE knows one word: the row of 妊娠妇女 does not hold 孕妇, and still is about women who are pregnant.
    """
    held = {row: source.catalog.items(row, condition.column) for row in rows}
    without = [items for row, items in held.items() if not contains(row, condition)]
    return all(held.values()) and all(clearly_absent(source, readers, condition.keyword, items) for items in without)


def _without(source: Corpus, kind: str, first: Condition, rows: list[Entity], second: Condition) -> Iterator[Draft]:
    """Yield those of `rows` that the second condition does not find, where it finds some, and for some groups these.

    Only who reads the question tells the two apart.
    """
    without = [row for row in rows if not contains(row, second)]
    if second.keyword != first.keyword and 0 < len(without) < len(rows) and all(row.askable for row in rows):
        for draft in search_of(source, "negation", without, (first, replace(second, holds=False))):
            yield replace(draft, bucket=f"{kind}/{draft.bucket}")
        having = [row for row in rows if row not in without]
        if source.rng.random() < WITHOUT_NOT and all(holds(source, row, second) for row in having):
            for draft in search_of(source, "negation", having, (first, second)):
                yield replace(draft, bucket=f"{kind}/{draft.bucket}")


def _empty(source: Corpus, first: Condition, rows: list[Entity]) -> Iterator[Draft]:
    """Yield those of `rows` whose column says nothing, where it says something in others."""
    columns = [column for column in source.columns(first.table) if column != first.column]
    for column in source.rng.sample(columns, min(COLUMNS_TRIED, len(columns))):
        empty = [row for row in rows if not row.values.get(column)]
        if 0 < len(empty) < len(rows) and all(row.askable for row in empty):
            for draft in search_of(source, "negation", empty, (first,)):
                yield replace(
                    draft,
                    pool="negation_empty",
                    column=(first.table, column),
                    sql=f"{draft.sql} AND ({column} IS NULL OR {column} = '')",
                    bucket=f"empty/{first.table}/{column}, {min(len(empty), 3)}",
                )


def _groups(source: Corpus) -> Iterator[Match]:
    """Yield the rows of a class, and those whose names share a part, in a random order."""
    catalog, found = source.catalog, []
    for table, column in KIND_COLUMNS.items():
        if column in catalog.columns[table]:
            items = {item for row in catalog.rows[table] for item in catalog.items(row, column)}
            found += [Condition(table, column, item) for item in sorted(items) if is_keyword(item, catalog.lang)]
    for table, name_column in NAME_COLUMNS.items():
        parts = Counter(part for row in catalog.rows[table] for part in {_stem(row.name, source.natural)})
        shared = [part for part, count in sorted(parts.items()) if count > 1 and is_keyword(part, catalog.lang)]
        found += [Condition(table, name_column, part) for part in shared]
    source.rng.shuffle(found)
    for condition in found:
        rows = catalog.rows_with(condition.table, condition.column, condition.keyword)
        is_name = condition.column in NAME_COLUMNS.values()
        if MIN_GROUP <= len(rows) <= MAX_GROUP and (is_name or all(holds(source, row, condition) for row in rows)):
            yield condition, rows


def _kinds(source: Corpus, first: Condition, rows: list[Entity]) -> Iterator[Condition]:
    """Yield another class of some of `rows`, and a word with which some of their names begin or end."""
    column = KIND_COLUMNS.get(first.table)
    if column in source.catalog.columns[first.table]:
        yield from _one(source, Condition(first.table, column, ""), _classes(source.catalog, rows, column, first))
    names = source.natural.names
    # How a disease's name ends says nothing of its kind (症, 病), a drug's ending is its form.
    ends = names.prefixes + (names.suffixes if first.table == "drugs_info" else ())
    said = [end.strip() for row in rows for end in ends if row.name.startswith(end) or row.name.endswith(end)]
    words = [word for word in said if len(word) > 1 and word not in first.keyword]
    yield from _one(source, Condition(first.table, NAME_COLUMNS[first.table], ""), words)


def _classes(catalog: Catalog, rows: list[Entity], column: str, first: Condition) -> list[str]:
    items = [item for row in rows for item in catalog.items(row, column)]
    return [item for item in items if is_keyword(item, catalog.lang) and fold(item) not in fold(first.keyword)]


def _one(source: Corpus, condition: Condition, words: list[str]) -> Iterator[Condition]:
    if words:
        yield replace(condition, keyword=source.rng.choice(words))


def _stem(name: str, banks: Banks) -> str:
    """Return a name without its longest known beginning and ending: 布洛芬 of 布洛芬缓释胶囊."""
    starts = [part for part in banks.names.prefixes if name.startswith(part)]
    ends = [part for part in banks.names.suffixes if name.endswith(part)]
    return name[len(max(starts, key=len, default="")) : len(name) - len(max(ends, key=len, default=""))].strip()


def _differences(source: Corpus, entities: Iterable[Entity], column: str) -> Iterator[Draft]:
    held = [(row, items) for row in entities if 0 < len(items := source.catalog.items(row, column)) <= source.max_items]
    source.rng.shuffle(held)
    del held[source.wanted // 2 :]
    for (one, items), (other, others) in pairwise(held):
        only = [item for item in items if not _like_any(item, others)]
        # An item of each that is nearly one of the other makes the difference a matter of opinion.
        clear = len(only) == len([item for item in items if item not in others])
        shared = len(only) < len(items)
        named = {fold(one.name), fold(other.name)} & set(map(fold, only))
        if shared and clear and not named and source.fits(only):
            yield Draft(
                task_type="negation",
                pool="negation_items",
                column=(one.table, column),
                slots={"name": one.name, "other": other.name},
                sql=named_rows_sql((one, other), column),
                answer=source.separator.join(only),
                evidence=tuple(evidence(one, column, item) for item in only),
                entities=frozenset({one.key, other.key}) | source.named_by([*items, *others]),
                bucket=source.bucket(f"items/{column}", only),
                pair=(one, other),
            )


def _like_any(item: str, others: Iterable[str]) -> bool:
    folded = fold(item)
    return any(folded in fold(other) or fold(other) in folded for other in others)
