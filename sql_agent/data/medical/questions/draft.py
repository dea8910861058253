"""What a generator makes before it is worded: the facts of one question, and what all generators share."""

from __future__ import annotations

import random
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from sql_agent.data.medical.phrasing import Wording
from sql_agent.data.medical.questions.catalog import Catalog, Entity, EntityKey
from sql_agent.data.medical.questions.related import DiseaseDrugs
from sql_agent.data.medical.sample_facts import SEPARATORS
from sql_agent.data.medical.schema import NAME_COLUMNS
from sql_agent.schemas import Evidence

TaskType = Literal[
    "drug_field",
    "disease_field",
    "comparison",
    "keyword_search",
    "aggregate",
    "disease_to_drugs",
    "unanswerable",
]
# How long an answer may be, in characters: what fits into one short reply of the agent.
MAX_ANSWER = {"en": 120, "zh": 60}
MAX_ITEMS = 8
# How many rows are looked at for each question wanted, so that the small splits find enough among them too.
ROWS_PER_QUESTION = 5


@dataclass(frozen=True)
class Draft:
    """One question without its words.

    `pool` names its phrasings and `column` (table, column) its {field}; `entities` are all rows that it names,
    needs or answers with; drafts are picked evenly over `bucket`.
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


@dataclass(frozen=True)
class Source:
    """What a generator draws from. `by_split` holds the askable rows of each split, by table; `wanted` is about how
    many drafts are useful."""

    catalog: Catalog
    wording: Wording
    by_split: Mapping[str, Mapping[str, list[Entity]]]
    relations: Sequence[DiseaseDrugs]
    rng: random.Random
    wanted: int

    @property
    def separator(self) -> str:
        """What stands between the items of a field and the facts of an answer."""
        return SEPARATORS[self.catalog.lang]

    @property
    def max_answer(self) -> int:
        return MAX_ANSWER[self.catalog.lang]

    def columns(self, table: str) -> list[str]:
        """The columns that have a name in words and that the database has."""
        return [column for column in self.wording.columns[table] if column in self.catalog.columns[table]]

    def some(self, table: str) -> list[Entity]:
        """The rows that a question can name; of a large table only as many as are useful, chosen at random."""
        rows = self.catalog.askable(table)
        enough = ROWS_PER_QUESTION * self.wanted
        return rows if len(rows) <= enough else self.rng.sample(rows, enough)

    def mentioned(self, texts: Iterable[str]) -> frozenset[EntityKey]:
        """The rows named inside `texts`: a question that shows them shares these entities too."""
        catalog = self.catalog
        return frozenset(
            entity.key for text in texts for table in catalog.rows for entity, _ in catalog.names_in(table, text)
        )

    def named_by(self, items: Iterable[str]) -> frozenset[EntityKey]:
        """The rows whose name is one of `items`."""
        found = (self.catalog.find(table, item) for item in items for table in self.catalog.rows)
        return frozenset(entity.key for entity in found if entity)


def quoted(text: str) -> str:
    """`text` as a SQL literal."""
    return "'" + text.replace("'", "''") + "'"


def in_list(texts: Iterable[str]) -> str:
    """`texts` as the list of an IN."""
    return "(" + ", ".join(map(quoted, texts)) + ")"


def evidence(entity: Entity, column: str, quote: str) -> Evidence:
    """Where `quote` stands."""
    return Evidence(table=entity.table, row_id=entity.row_id, field=column, quote=quote)


def name_evidence(entities: Iterable[Entity]) -> tuple[Evidence, ...]:
    """The name cells of `entities`: what a query that lists them returns."""
    return tuple(evidence(entity, NAME_COLUMNS[entity.table], entity.name) for entity in entities)
