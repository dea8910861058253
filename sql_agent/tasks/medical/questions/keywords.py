"""Find keywords that a question can search for, with the rows that hold them.

A keyword is a whole item in every row that LIKE finds, or an item without the words that stand glued to it (孕妇 of
孕妇禁用): '%头痛%' finds 偏头痛 and '%处方药%' finds 非处方药 too, and an answer that lists those is wrong.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from functools import lru_cache
from itertools import chain, islice, pairwise, zip_longest

from sql_agent.database.schema import fold
from sql_agent.tasks.medical.banks import Stem, banks, spoken
from sql_agent.tasks.medical.questions.catalog import ITEM_ENDS, Catalog, Entity, refers_elsewhere
from sql_agent.tasks.medical.questions.draft import Condition, Corpus, is_keyword

# Of the keywords of a row: how many are among those that people can say in other words, where there are some.
EVERYDAY_SHARE = 0.7
# How many keywords are tried for each question wanted.
_TRIED = 12
# More rows than this are neither listed nor counted.
_MOST_ROWS = 20
# From so many rows on, keywords are taken alike.
_SEVERAL = 4
# Sentences about the row itself are no place to search for a keyword.
_NOT_SEARCHED = frozenset({"description", "overview"})

Match = tuple[Condition, list[Entity]]


def searched_columns(source: Corpus, table: str) -> list[str]:
    """Return the columns of `table` that a question may search."""
    return [column for column in source.columns(table) if column not in _NOT_SEARCHED]


def matches(source: Corpus) -> Iterator[Match]:
    """Yield keywords with the rows that LIKE selects for them, evenly over columns and numbers of rows.

    Half of them people can say in other words, as long as there are such.
    """
    for table, column, keyword in _candidates(source):
        rows = source.catalog.rows_with(table, column, keyword)
        condition = Condition(table, column, keyword)
        if rows and all(row.askable and holds(source, row, condition) for row in rows):
            yield condition, rows


def either(source: Corpus, found: Sequence[Match]) -> Iterator[Match]:
    """Yield pairs of `found` in one column and one split, as a search for rows that hold the one or the other.

    Both are in people's own words, or in several rows: nobody asks for one of two things that hardly anything has.
    """
    split_of = {row.key: split for split, tables in source.by_split.items() for rows in tables.values() for row in rows}
    groups: dict[tuple[str, str, str], list[Match]] = {}
    for condition, rows in found:
        splits = {split_of.get(row.key) for row in rows}
        known = len(rows) > 1 or is_everyday(source, condition)
        if known and len(splits) == 1 and (split := splits.pop()):
            groups.setdefault((split, condition.table, condition.column), []).append((condition, rows))
    for group in groups.values():
        # People ask for two things that they know: those of their own words stand side by side.
        group.sort(key=lambda match: is_everyday(source, match[0]))
        for (one, rows), (other, others) in pairwise(group):
            both = sorted({*rows, *others}, key=lambda row: row.row_id)
            apart = one.keyword not in other.keyword and other.keyword not in one.keyword
            if apart and max(len(rows), len(others)) < len(both):
                yield Condition(one.table, one.column, one.keyword, other=other.keyword), both


def is_everyday(source: Corpus, condition: Condition) -> bool:
    """Return whether people can say all keywords of `condition` in other words."""
    return source.banks is not None and all(len(spoken(source.banks, word)) > 1 for word in condition.keywords)


def one_of(source: Corpus, keywords: Sequence[str]) -> str:
    """Return one of `keywords`, most often one that people can say in other words."""
    everyday = [word for word in keywords if source.banks and len(spoken(source.banks, word)) > 1]
    return source.rng.choice(everyday if everyday and source.rng.random() < EVERYDAY_SHARE else keywords)


def keywords_of(source: Corpus, row: Entity, column: str) -> list[str]:
    """Return what a question can search the column for, of what this row holds there."""
    return list(_keywords(source.catalog, row, column, _stem(source, row.table, column)))


def holds(source: Corpus, row: Entity, condition: Condition) -> bool:
    """Return whether LIKE finds the row, and each keyword that it finds there is an item."""
    cell = row.values.get(condition.column) or ""
    if refers_elsewhere(cell, source.catalog.lang):
        return False
    text = fold(cell)
    inside = {word for keyword in condition.keywords if (word := fold(keyword)) in text}
    stem = _stem(source, condition.table, condition.column)
    return bool(inside) and inside <= {form for item in _items(text, stem) for form in _forms(item, stem)}


def contains(row: Entity, condition: Condition) -> bool:
    """Return whether LIKE finds the row."""
    text = fold(row.values.get(condition.column) or "")
    return any(fold(word) in text for word in condition.keywords)


def _stem(source: Corpus, table: str, column: str) -> Stem | None:
    return source.banks.searches.stem(table, column) if source.banks else None


def _candidates(source: Corpus) -> Iterator[tuple[str, str, str]]:
    said = source.banks.patterns.predicates if source.banks else {}
    columns = {table: searched_columns(source, table) for table in source.catalog.rows}
    groups: dict[tuple[str, str, int, bool], list[tuple[str, str, str]]] = {}
    for (table, column, keyword), count in _counted(source.catalog, natural=source.banks is not None).items():
        if column in columns[table] and count <= _MOST_ROWS:
            # Columns that only formal sentences ask about share a place, so that these do not become more.
            place = column if column in said.get(table, ()) else ""
            everyday = is_everyday(source, Condition(table, column, keyword))
            groups.setdefault((table, place, min(count, _SEVERAL), everyday), []).append((table, column, keyword))
    for _, group in sorted(groups.items()):
        group.sort()
        source.rng.shuffle(group)
    in_turn = chain.from_iterable(zip_longest(*(group for _, group in sorted(groups.items()))))
    yield from islice((candidate for candidate in in_turn if candidate), _TRIED * source.wanted)


@lru_cache(maxsize=2)
def _counted(catalog: Catalog, *, natural: bool) -> Counter[tuple[str, str, str]]:
    """Return in how many rows each keyword is an item, by table and column."""
    counts: Counter[tuple[str, str, str]] = Counter()
    for table, rows in catalog.rows.items():
        for column in catalog.columns[table]:
            stem = banks(catalog.lang).searches.stem(table, column) if natural else None
            held = (row for row in rows if row.askable and row.values.get(column))
            counts.update((table, column, word) for row in held for word in _keywords(catalog, row, column, stem))
    return counts


def _keywords(catalog: Catalog, row: Entity, column: str, stem: Stem | None) -> dict[str, None]:
    """Return the plain items of a cell; of one that has words glued to it, what is left without them."""
    items = catalog.items(row, column)
    if stem:
        items = [part for item in items for part in _items(item, stem)]
    forms = (_forms(item, stem) for item in items)
    found = (form for all_of in forms for form in (all_of[1:] or all_of)[-2:])
    return dict.fromkeys(form for form in found if is_keyword(form, catalog.lang))


def _items(text: str, stem: Stem | None) -> list[str]:
    """Return the parts of a text between separators, and in a column with glued words between those that join."""
    parts = [part.strip() for part in ITEM_ENDS.split(text)]
    for word in stem.joined if stem else ():
        parts += [piece.strip() for part in parts if word in part for piece in part.split(word)]
    return parts


def _forms(item: str, stem: Stem | None) -> list[str]:
    """Return an item as it stands, and without one and more of the words that are glued to it."""
    forms = [item]
    while stem and (shorter := stem.without_one(forms[-1])):
        forms.append(shorter)
    return forms
