"""What a generator makes before it is worded: the facts of one question, and what all generators share."""

from __future__ import annotations

import heapq
import random
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal
from zlib import crc32

from sql_agent.schemas import Evidence, Lang
from sql_agent.tasks.medical.banks import Banks, Wordings, spoken
from sql_agent.tasks.medical.phrasing import Wording
from sql_agent.tasks.medical.questions.catalog import Catalog, Entity, EntityKey, refers_elsewhere
from sql_agent.tasks.medical.questions.related import DiseaseDrugs
from sql_agent.tasks.medical.sample import SEPARATORS
from sql_agent.tasks.medical.tables import NAME_COLUMNS

TaskType = Literal[
    "drug_field",
    "disease_field",
    "comparison",
    "keyword_search",
    "aggregate",
    "disease_to_drugs",
    "unanswerable",
    "part_of_field",
    "yes_no",
    "two_conditions",
    "negation",
    "two_hops",
    "any_of",
]
# How long an answer may be, in characters and items: what fits into one short reply of the agent. People who ask for a
# whole list want all of it; formal sentences have the shorter answers that they always had.
MAX_ANSWER = {"en": 200, "zh": 100}
MAX_FORMAL_ANSWER = {"en": 120, "zh": 60}
MAX_ITEMS, MAX_FORMAL_ITEMS = 12, 8
# Columns that list things of one kind, of which some can be named alone, and all can be asked for.
LISTS = {
    "drugs_info": ("component", "indication", "adverse_reactions", "contraindications", "precautions",
                   "drug_interactions", "form"),
    "disease": ("clinical_manif", "complication", "examination", "treatment", "cause", "differ_diag", "prevention"),
}  # fmt: skip
# What nobody looks for: that something is unknown, a reference to another text, a dose, the colour of a liquid.
_NO_KEYWORD = {
    "en": re.compile(r"unknown|unclear|not known|see |etc|\d ?(?:mg|g|ml)\b", re.IGNORECASE),
    "zh": re.compile(
        r"^(?:[或及并和与且但如请为在故]|适?用于|可[并引致]|味|气[微香])"
        r"|禁忌|[的者等尚见]|不明|不清|未明|未知|其[他它]|本[品药]|\d(?:mg|g|ml)",
        re.IGNORECASE,
    ),
}
_KEYWORD = {"en": re.compile(r"[A-Za-z0-9][A-Za-z0-9' -]{2,28}"), "zh": re.compile(r"[一-鿿A-Za-z0-9]{2,10}")}
MAX_FEW = 4
# How many rows are looked at for each question wanted, so that the small splits find enough among them too.
ROWS_PER_QUESTION = 5


@dataclass(frozen=True)
class Condition:
    """Whether a column holds a keyword, or one of two: what a question says of the rows that it looks for."""

    table: str
    column: str
    keyword: str
    holds: bool = True
    other: str | None = None

    @property
    def keywords(self) -> tuple[str, ...]:
        return (self.keyword, self.other) if self.other else (self.keyword,)

    @property
    def sql(self) -> str:
        like = "LIKE" if self.holds else "NOT LIKE"
        return " OR ".join(f"{self.column} {like} {quoted(f'%{word}%')}" for word in self.keywords)


@dataclass(frozen=True)
class Draft:
    """One question without its words.

    `pool` names its phrasings and `column` (table, column) its {field}; `entities` are all rows that it names, needs
    or answers with; drafts are picked evenly over `bucket`, level by level where it has some ("yes/storage"). A
    natural wording uses the rest: `subject` is the row that {name} stands for and that people may write in their own
    way, `pair` are those of {name} and {other}, `conditions` become {first} and {second}, `other_sql` answers as well
    as `sql` does, and a text that holds one of `unsaid` would give a wrong question; `second` are the words of
    {second} where it is no condition on a keyword. No formal sentence can word a draft that is not `formal`. In a
    bucket, those of the lowest `order` come first.
    """

    task_type: TaskType
    pool: str
    column: tuple[str, str] | None
    slots: Mapping[str, str]
    sql: str
    answer: str
    evidence: tuple[Evidence, ...]
    entities: frozenset[EntityKey]
    bucket: str = ""
    subject: Entity | None = None
    pair: tuple[Entity, Entity] | None = None
    conditions: tuple[Condition, ...] = ()
    other_sql: tuple[str, ...] = ()
    unsaid: tuple[str, ...] = ()
    second: Wordings | None = None
    enough: int | None = None
    formal: bool = True
    order: int = 0


@dataclass(frozen=True)
class Corpus:
    """What a generator draws from. `by_split` holds the askable rows of each split, by table; `wanted` is about how
    many drafts are useful."""

    catalog: Catalog
    wording: Wording
    by_split: Mapping[str, Mapping[str, list[Entity]]]
    relations: Sequence[DiseaseDrugs]
    rng: random.Random
    wanted: int
    banks: Banks | None = None
    seed: int = 0

    @property
    def natural(self) -> Banks:
        """Return the phrase banks; a style without them makes no draft that needs them."""
        if self.banks is None:
            raise AssertionError("this style has no phrase banks")
        return self.banks

    @property
    def separator(self) -> str:
        """Return what stands between the items of a field and the facts of an answer."""
        return SEPARATORS[self.catalog.lang]

    @property
    def max_answer(self) -> int:
        """Return how many characters an answer may have."""
        return (MAX_ANSWER if self.banks else MAX_FORMAL_ANSWER)[self.catalog.lang]

    @property
    def max_items(self) -> int:
        """Return how many facts an answer may have."""
        return MAX_ITEMS if self.banks else MAX_FORMAL_ITEMS

    def fits(self, items: Sequence[str]) -> bool:
        """Return whether `items` are a short enough answer."""
        return 0 < len(items) <= self.max_items and len(self.separator.join(items)) <= self.max_answer

    def bucket(self, kind: str, items: Sequence[str]) -> str:
        """Return where a draft of `kind` is counted, so that as many answers are one item as are a few and many.

        Most cells of a large database hold one item. A model that was trained on them gave one item of an answer that
        has several: 27 of 91 failures on natural questions (docs/results.md).
        """
        size = "one" if len(items) == 1 else "few" if len(items) <= MAX_FEW else "many"
        return f"{kind}, {size}" if self.banks else kind

    def columns(self, table: str) -> list[str]:
        """Return the columns that have a name in words and that the database has."""
        return [column for column in self.wording.columns[table] if column in self.catalog.columns[table]]

    def some(self, table: str) -> list[Entity]:
        """Return the rows that a question can name; of a large table only as many as are useful, chosen at random."""
        rows = self.catalog.askable(table)
        enough = ROWS_PER_QUESTION * self.wanted
        return rows if len(rows) <= enough else self.rng.sample(rows, enough)

    def rows_for_fields(self, table: str) -> list[Entity]:
        """Return as many rows as `some`, the same for each type: a cell is asked for a part, for the rest and for all.

        A model that saw only the whole of some cells and a part of others gave the whole where a part was asked.
        """
        rows = self.catalog.askable(table)
        enough = ROWS_PER_QUESTION * self.wanted
        return rows if len(rows) <= enough else heapq.nsmallest(enough, rows, key=self.order)

    def order(self, row: Entity, column: str = "") -> int:
        """Return a number by which rows and cells come in the same order for each type, another one for each seed."""
        return crc32(f"{self.seed} {row.table} {row.row_id} {column}".encode())

    def said(self, item: str, everyday_share: float) -> str:
        """Return how a question says `item`: so often in everyday words, where there are some."""
        formal, *everyday = spoken(self.natural, item)
        return self.rng.choice(everyday) if everyday and self.rng.random() < everyday_share else formal

    def says_something(self, text: str) -> bool:
        """Return whether a cell holds more than that nothing is known, or that another text says it: "(尚不明确)" and
        "参见华法林" are no ground for a "no"."""
        silent = text.strip("()（）。. ").lower() in {"", *self.wording.meaningless}
        return not silent and not refers_elsewhere(text, self.catalog.lang)

    def mentioned(self, texts: Iterable[str]) -> frozenset[EntityKey]:
        """Return the rows named inside `texts`: a question that shows them shares these entities too."""
        catalog = self.catalog
        return frozenset(
            entity.key for text in texts for table in catalog.rows for entity, _ in catalog.names_in(table, text)
        )

    def named_by(self, items: Iterable[str]) -> frozenset[EntityKey]:
        """Return the rows whose name is one of `items`."""
        found = (self.catalog.find(table, item) for item in items for table in self.catalog.rows)
        return frozenset(entity.key for entity in found if entity)


def is_keyword(item: str, lang: Lang) -> bool:
    """Return whether `item` is short and plain enough to search for."""
    return bool(_KEYWORD[lang].fullmatch(item)) and not _NO_KEYWORD[lang].search(item)


def quoted(text: str) -> str:
    """Return `text` as a SQL literal."""
    return "'" + text.replace("'", "''") + "'"


def name_is(entity: Entity) -> str:
    """Return the condition that finds one row by its name."""
    return f"{NAME_COLUMNS[entity.table]} = {quoted(entity.name)}"


def named_rows_sql(rows: Sequence[Entity], column: str) -> str:
    """Return the statement that reads the names of `rows`, all of one table, and one column of them."""
    table = rows[0].table
    name_column = NAME_COLUMNS[table]
    which = name_is(rows[0]) if len(rows) == 1 else f"{name_column} IN {in_list(row.name for row in rows)}"
    return f"SELECT {name_column}, {column} FROM {table} WHERE {which}"


def in_list(texts: Iterable[str]) -> str:
    """Return `texts` as the list of an IN."""
    return "(" + ", ".join(map(quoted, texts)) + ")"


def cell_draft(
    source: Corpus, entity: Entity, column: str, items: Sequence[str], *, task_type: TaskType, pool: str, bucket: str
) -> Draft:
    """Return a draft that asks for `items` of one cell."""
    return Draft(
        task_type=task_type,
        pool=pool,
        column=(entity.table, column),
        slots={"name": entity.name},
        sql=f"SELECT {column} FROM {entity.table} WHERE {name_is(entity)}",
        answer=source.separator.join(items),
        evidence=tuple(evidence(entity, column, item) for item in items),
        entities=frozenset({entity.key}) | source.named_by(items),
        bucket=bucket,
        subject=entity,
        order=source.order(entity, column),
    )


def evidence(entity: Entity, column: str, quote: str) -> Evidence:
    """Return where `quote` stands."""
    return Evidence(table=entity.table, row_id=entity.row_id, field=column, quote=quote)


def name_evidence(entities: Iterable[Entity]) -> tuple[Evidence, ...]:
    """Return the name cells of `entities`: what a query that lists them returns."""
    return tuple(evidence(entity, NAME_COLUMNS[entity.table], entity.name) for entity in entities)
