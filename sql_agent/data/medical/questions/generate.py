"""Makes questions with gold SQL, reference answer and evidence from any medical database."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from typing import get_args

from sql_agent.data.medical.phrasing import wording
from sql_agent.data.medical.questions.catalog import Catalog
from sql_agent.data.medical.questions.comparison import comparison
from sql_agent.data.medical.questions.disease_to_drugs import disease_to_drugs
from sql_agent.data.medical.questions.draft import Draft, Source, TaskType
from sql_agent.data.medical.questions.fields import disease_field, drug_field
from sql_agent.data.medical.questions.phraser import Phraser
from sql_agent.data.medical.questions.related import DiseaseDrugs, families, relations
from sql_agent.data.medical.questions.search import aggregate, keyword_search
from sql_agent.data.medical.questions.unanswerable import unanswerable
from sql_agent.data.medical.splits import SHARES, Splits
from sql_agent.schemas import Question

GENERATORS: Mapping[TaskType, Callable[[Source], Iterable[Draft]]] = {
    "drug_field": drug_field,
    "disease_field": disease_field,
    "comparison": comparison,
    "keyword_search": keyword_search,
    "aggregate": aggregate,
    "disease_to_drugs": disease_to_drugs,
    "unanswerable": unanswerable,
}
# A large database gives this many questions a type; a small one twice as many as it has rows.
MAX_PER_TYPE = 800
# When a type has few facts in a split, each is asked in up to this many ways.
MAX_WORDINGS = 4


def make_questions(catalog: Catalog, *, seed: int = 0, per_type: int | None = None) -> dict[str, list[Question]]:
    """Questions by split ("train", "val", "test"), about `per_type` of each task type in all, 70/10/20.

    No two splits share an entity: neither one that is asked about, nor one that is needed for or named in the answer.
    The same catalog, seed and `per_type` give the same questions.
    """
    per_type = per_type or min(MAX_PER_TYPE, 2 * sum(map(len, catalog.rows.values())))
    related = relations(catalog)
    splits = _splits(catalog, related, seed)
    by_split = {
        split: {
            table: [row for row in catalog.askable(table) if splits.of([row.key]) == split] for table in catalog.rows
        }
        for split in SHARES
    }
    made: dict[str, list[Question]] = {split: [] for split in SHARES}
    for task_type in get_args(TaskType):
        rng = random.Random(f"{seed} {task_type}")
        source = Source(catalog, wording(catalog.lang), by_split, related, rng, per_type)
        drafts: dict[str | None, list[Draft]] = {}
        for draft in GENERATORS[task_type](source):
            drafts.setdefault(splits.of(draft.entities), []).append(draft)
        number = 0
        for split, share in SHARES.items():
            worder = Phraser(source.wording, rng, held_out=split == "test")
            for draft, text in _pick(drafts.get(split, []), round(per_type * share), worder, rng):
                made[split].append(_question(draft, text, f"{catalog.lang}-{task_type}-{number:06}", catalog))
                number += 1
    return made


def _splits(catalog: Catalog, related: Iterable[DiseaseDrugs], seed: int) -> Splits:
    keys = list(dict.fromkeys(row.key for rows in catalog.rows.values() for row in rows))
    # Questions across both tables first: they are the fewest. Small sets are the easiest to keep whole.
    together = [
        group
        for groups in ({relation.entities for relation in related}, set(families(catalog)))
        for group in sorted(groups, key=lambda group: (len(group), sorted(group)))
    ]
    return Splits(keys, together, seed)


def _pick(drafts: list[Draft], wanted: int, worder: Phraser, rng: random.Random) -> list[tuple[Draft, str]]:
    """Up to `wanted` drafts with a text each, evenly over their buckets; again in other words while there are few."""
    ordered = _round_robin(drafts, rng)
    picked: list[tuple[Draft, str]] = []
    for _ in range(MAX_WORDINGS):
        for draft in ordered:
            if len(picked) == wanted:
                return picked
            if text := worder.text(draft):
                picked.append((draft, text))
    return picked


def _round_robin(drafts: list[Draft], rng: random.Random) -> list[Draft]:
    buckets: dict[str, list[Draft]] = {}
    for draft in drafts:
        buckets.setdefault(draft.bucket, []).append(draft)
    ranked: list[tuple[int, Draft]] = []
    for name in sorted(buckets):
        rng.shuffle(buckets[name])
        ranked += enumerate(buckets[name])
    return [draft for _, draft in sorted(ranked, key=lambda pair: pair[0])]


def _question(draft: Draft, text: str, question_id: str, catalog: Catalog) -> Question:
    return Question(
        id=question_id,
        question=text,
        answer=draft.answer,
        lang=catalog.lang,
        sql=draft.sql,
        evidence=draft.evidence,
        task_type=draft.task_type,
    )


def count_by_type(questions: Iterable[Question]) -> Counter[str]:
    """How many questions of each task type there are."""
    return Counter(str(question.task_type) for question in questions)


__all__ = ["GENERATORS", "count_by_type", "make_questions"]
