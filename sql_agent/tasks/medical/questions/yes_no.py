"""Questions that are answered by yes or no: whether a cell lists an item, and whether cells say something."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import chain

from sql_agent.database.schema import fold
from sql_agent.tasks.medical.banks import spoken
from sql_agent.tasks.medical.questions.absent import clearly_absent
from sql_agent.tasks.medical.questions.catalog import Entity
from sql_agent.tasks.medical.questions.claims import ClaimReader, claim_readers
from sql_agent.tasks.medical.questions.draft import Corpus, Draft, evidence, name_is
from sql_agent.tasks.medical.questions.part_of_field import MAX_CELL
from sql_agent.tasks.medical.questions.topics import topic_readers

# Longer cells are too much to read for one thing that they say.
MAX_CHARS = 400
# A claim is one of dozens: no more than this part of the questions wanted are of one, each way round.
CLAIM_PART = 4
# How many other items are tried before a cell has none that it clearly lacks.
TRIES = 20
# How many questions for one item ask for one that people can say in their own words, where there is one; and of those,
# how many say it so.
EVERYDAY_SHARE = 0.7
# How many items that a cell lacks are of another column of the same row, where there is one that could be of the cell.
BESIDE_SHARE = 0.6
# An item that stands in another column of the table so much more often got into this one by mistake.
BELONGS_SHARE = 0.2
# What a drug is for is not what it does by accident: an item in both columns of a row says nothing clear in either.
_CONTRARY = {"adverse_reactions": "indication", "indication": "adverse_reactions"}
# What can be asked for by name: no sentence ("孕妇禁用"), no look of a drug ("棕褐色液体").
_PLAIN = {
    "en": re.compile(r"[a-z][a-z -]{3,22}"),
    "zh": re.compile(
        r"(?!适?用于|[可同与及或并和为故])(?!.*(?:[禁忌慎等者的尚见勿]|本品|不明|不清|未明|暂无|信息|色.*[液粉片粒晶丸膏]))[一-鿿]{2,6}"
    ),
}


def yes_no(source: Corpus) -> Iterator[Draft]:
    """Yield questions for one item of a cell and for what cells say, as many with "yes" as with "no" of each kind."""
    for table, columns in source.natural.patterns.yes_no.items():
        belongs = _belonging(source, table)
        for column in columns:
            if column in source.catalog.columns[table]:
                yield from _items(source, table, column, belongs)
    ways: dict[tuple[str, str, str], list[ClaimReader]] = {}
    for reader in claim_readers(source.catalog.lang):
        ways.setdefault((reader.table, reader.name, reader.item), []).append(reader)
    for readers in ways.values():
        yield from _claims(source, readers)


def _claims(source: Corpus, readers: Sequence[ClaimReader]) -> Iterator[Draft]:
    """Yield questions for one claim, each way round that it is asked as often with "yes" as with "no".

    Otherwise how the question is put would give its answer away.
    """
    columns = _columns(source, readers[0])
    drafts: dict[tuple[bool, bool], list[Draft]] = {
        (reader.opposite, holds): [] for reader in readers for holds in (True, False)
    }
    entities = source.catalog.askable(readers[0].table)
    for entity in source.rng.sample(entities, len(entities)):
        cells = {column: text for column in columns if source.says_something(text := entity.values.get(column) or "")}
        reader = source.rng.choice(readers)
        if reader.named_by(entity.name):
            continue
        if cells and sum(map(len, cells.values())) <= MAX_CHARS and (decided := reader.decide(cells)):
            drafts[reader.opposite, decided[0]].append(_claim(source, reader, entity, cells, decided))
            if min(map(len, drafts.values())) == source.wanted // CLAIM_PART:
                break
    for group in zip(*drafts.values(), strict=False):
        yield from group


def _columns(source: Corpus, reader: ClaimReader) -> list[str]:
    return [column for column in reader.claim.columns if column in source.catalog.columns[reader.table]]


def _claim(
    source: Corpus, reader: ClaimReader, entity: Entity, cells: Mapping[str, str], decided: tuple[bool, list[str]]
) -> Draft:
    """Read all columns in which people would look, in one statement: the question does not say which one decides."""
    yes, deciding = decided
    answer = source.wording.yes if yes else source.wording.no
    columns = _columns(source, reader)
    near = "near" if reader.names_another(cells) else "far"
    return Draft(
        task_type="yes_no",
        pool=f"{'opposite' if reader.opposite else 'claim'} {reader.name}",
        column=(entity.table, columns[0]),
        slots={"name": entity.name, "item": source.said(reader.item, EVERYDAY_SHARE)},
        sql=f"SELECT {', '.join(columns)} FROM {entity.table} WHERE {name_is(entity)}",
        answer=answer,
        evidence=tuple(evidence(entity, column, entity.values[column] or "") for column in deciding),
        entities=frozenset({entity.key}),
        bucket=f"{answer}/{', '.join(columns)}/{reader.name}/{reader.item}/{reader.opposite}/{near}",
        subject=entity,
    )


def _items(source: Corpus, table: str, column: str, belongs: Callable[[str, str], bool]) -> Iterator[Draft]:
    """Yield whether a cell lists an item: one that it holds, or one that it has nothing like."""
    plain, readers = _PLAIN[source.catalog.lang], list(topic_readers(source).values())
    entities = source.some(table)
    held = {row: source.catalog.items(row, column) for row in entities}
    # Items as often as rows have them: a "no" is about what is asked elsewhere, so that the item gives nothing away.
    pool = [item for row in held.values() for item in row if plain.fullmatch(item) and belongs(item, column)]
    known = set(pool)
    everyday = [item for item in pool if _has_other_words(source, item)]
    for entity, items in held.items():
        if not 0 < len(items) <= MAX_CELL:
            continue
        candidates = [
            item
            for item in items
            if item in known
            and _stands_once(item, items)
            and fold(item) not in fold(entity.name)
            and item not in source.catalog.items(entity, _CONTRARY.get(column, ""))
        ]
        tried = chain(_beside(source, entity, column, known), _some_of(source, pool, everyday))
        absent = next((item for item in tried if clearly_absent(source, readers, item, items)), None)
        if candidates and absent:
            others = [item for item in candidates if _has_other_words(source, item)]
            present = next(_some_of(source, candidates, others))
            yield _decide(source, entity, column, present, items, holds=True)
            yield _decide(source, entity, column, absent, items, holds=False)


def _belonging(source: Corpus, table: str) -> Callable[[str, str], bool]:
    """Return what says whether an item is a thing of a column: it stands there nearly as often as anywhere else."""
    columns = source.natural.patterns.yes_no[table]
    catalog = source.catalog
    rows = {
        column: Counter(item for row in catalog.rows[table] for item in catalog.items(row, column))
        for column in columns
    }

    def belongs(item: str, column: str) -> bool:
        return rows[column][item] >= BELONGS_SHARE * max(counts[item] for counts in rows.values())

    return belongs


def _beside(source: Corpus, entity: Entity, column: str, known: set[str]) -> list[str]:
    """Return, for so many questions, items of the row's other columns that this one has in other rows.

    Who reads another column than the one asked about answers these wrongly.
    """
    if source.rng.random() >= BESIDE_SHARE:
        return []
    others = [other for other in source.natural.patterns.yes_no[entity.table] if other != column]
    items = [item for other in others for item in source.catalog.items(entity, other) if item in known]
    return source.rng.sample(items, len(items))


def _has_other_words(source: Corpus, item: str) -> bool:
    return len(spoken(source.natural, item)) > 1


def _some_of(source: Corpus, pool: list[str], everyday: list[str]) -> Iterator[str]:
    """Items of `pool`, most of them from `everyday`, which people can say in their own words."""
    for _ in range(TRIES if pool else 0):
        yield source.rng.choice(everyday if everyday and source.rng.random() < EVERYDAY_SHARE else pool)


def _stands_once(item: str, items: list[str]) -> bool:
    return sum(fold(item) in fold(other) for other in items) == 1


def _decide(source: Corpus, entity: Entity, column: str, item: str, items: list[str], *, holds: bool) -> Draft:
    """Decide by the evidence, which of a "no" is the whole cell: it was looked into."""
    cell = entity.values[column] or ""
    answer = source.wording.yes if holds else source.wording.no
    return Draft(
        task_type="yes_no",
        pool="yes_no",
        column=(entity.table, column),
        slots={"name": entity.name, "item": source.said(item, EVERYDAY_SHARE)},
        sql=f"SELECT {column} FROM {entity.table} WHERE {name_is(entity)}",
        answer=answer,
        evidence=(evidence(entity, column, item if holds else cell),),
        entities=frozenset({entity.key}) | source.named_by([item]),
        bucket=f"{answer}/{column}/items",
        subject=entity,
        # A text that held another item of the cell by chance would ask for that one too.
        unsaid=tuple(other for other in items if other != item),
    )
