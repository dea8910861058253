"""Makes questions with gold SQL, reference answer and evidence from any medical database."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable, Iterable, Mapping

from sql_agent.schemas import Question, Style
from sql_agent.tasks.medical.banks import banks
from sql_agent.tasks.medical.phrasing import wording
from sql_agent.tasks.medical.questions.catalog import Catalog
from sql_agent.tasks.medical.questions.comparison import comparison
from sql_agent.tasks.medical.questions.composer import Composer, mixed
from sql_agent.tasks.medical.questions.conditions import any_of, two_conditions
from sql_agent.tasks.medical.questions.disease_to_drugs import disease_to_drugs
from sql_agent.tasks.medical.questions.draft import Corpus, Draft, TaskType
from sql_agent.tasks.medical.questions.fields import disease_field, drug_field
from sql_agent.tasks.medical.questions.naming import Namer
from sql_agent.tasks.medical.questions.negation import negation
from sql_agent.tasks.medical.questions.part_of_field import part_of_field
from sql_agent.tasks.medical.questions.phraser import Phraser
from sql_agent.tasks.medical.questions.related import DiseaseDrugs, families, relations
from sql_agent.tasks.medical.questions.search import aggregate, keyword_search
from sql_agent.tasks.medical.questions.two_hops import two_hops
from sql_agent.tasks.medical.questions.unanswerable import unanswerable, unanswerable_naturally
from sql_agent.tasks.medical.questions.yes_no import yes_no
from sql_agent.tasks.splits import SHARES, Splits

# How much of what templates can word is worded by them.
FORMAL_SHARES: Mapping[Style, float] = {"template": 1.0, "natural": 0.0, "mixed": 1 / 3}

Generators = Mapping[TaskType, Callable[[Corpus], Iterable[Draft]]]
TEMPLATE_GENERATORS: Generators = {
    "drug_field": drug_field,
    "disease_field": disease_field,
    "comparison": comparison,
    "keyword_search": keyword_search,
    "aggregate": aggregate,
    "disease_to_drugs": disease_to_drugs,
    "unanswerable": unanswerable,
}
GENERATORS: Generators = {
    **TEMPLATE_GENERATORS,
    "unanswerable": unanswerable_naturally,
    "part_of_field": part_of_field,
    "yes_no": yes_no,
    "two_conditions": two_conditions,
    "negation": negation,
    "two_hops": two_hops,
    "any_of": any_of,
}
# What people ask more often, beside the template style, which has as many of each type.
WEIGHTS: Mapping[TaskType, float] = {
    "drug_field": 2.0,
    "disease_field": 2.0,
    "part_of_field": 1.5,
    "yes_no": 1.5,
    "unanswerable": 1.5,
}
# A large database gives this many questions a type; a small one twice as many as it has rows.
MAX_PER_TYPE: Mapping[Style, int] = {"template": 800, "natural": 400, "mixed": 400}
# When a type has few facts in a split, each is asked in up to this many ways.
MAX_WORDINGS = 4

Word = Callable[[Draft], tuple[str, str] | None]
Picked = tuple[Draft, str, str]


def task_types(style: Style) -> tuple[TaskType, ...]:
    """Return the types of question that a style has."""
    return tuple(TEMPLATE_GENERATORS if style == "template" else GENERATORS)


def make_questions(
    catalog: Catalog, *, seed: int = 0, per_type: int | None = None, style: Style = "mixed"
) -> dict[str, list[Question]]:
    """Questions by split ("train", "val", "test"), 70/10/20: `per_type` times the weight of each task type.

    `style` "template" has formal sentences only and the seven task types that they can ask for, "natural" asks as
    people do, "mixed" words a third of those seven types formally. No two splits share an entity: neither one that is
    asked about, nor one that is needed for or named in the answer. The same arguments give the same questions.
    """
    per_type = per_type or min(MAX_PER_TYPE[style], 2 * sum(map(len, catalog.rows.values())))
    related = relations(catalog)
    splits = _splits(catalog, related, seed)
    by_split = {
        split: {
            table: [row for row in catalog.askable(table) if splits.of([row.key]) == split] for table in catalog.rows
        }
        for split in SHARES
    }
    made: dict[str, list[Question]] = {split: [] for split in SHARES}
    natural = None if style == "template" else banks(catalog.lang)
    namer = Namer(catalog, natural.names) if natural else None
    used: set[str] = set()
    for task_type in task_types(style):
        rng = random.Random(f"{seed} {task_type}")
        wanted = per_type if natural is None else round(per_type * WEIGHTS.get(task_type, 1.0))
        source = Corpus(catalog, wording(catalog.lang), by_split, related, rng, wanted, natural, seed)
        drafts: dict[str | None, list[Draft]] = {}
        generator = TEMPLATE_GENERATORS[task_type] if natural is None else GENERATORS[task_type]
        for draft in generator(source):
            drafts.setdefault(splits.of(draft.entities), []).append(draft)
        number = 0
        for split, share in SHARES.items():
            word = _word_of_split(source, namer, split, used, style)
            for draft, text, sql in _pick(drafts.get(split, []), round(wanted * share), word, rng):
                question_id = f"{catalog.lang}-{task_type}-{number:06}"
                made[split].append(_question(draft, text, sql, question_id, catalog))
                number += 1
    return made


def _word_of_split(source: Corpus, namer: Namer | None, split: str, used: set[str], style: Style) -> Word:
    """Return what puts the drafts of `split` into words."""
    phraser = Phraser(source.wording, source.rng, held_out=split == "test", used=used)
    if namer is None:
        return phraser.word
    composer = Composer(source, namer, "test" if split == "test" else "train", used)
    formal_share = FORMAL_SHARES[style]
    return mixed(phraser.word, composer.word, formal_share, source.rng) if formal_share else composer.word


def _splits(catalog: Catalog, related: Iterable[DiseaseDrugs], seed: int) -> Splits:
    keys = list(dict.fromkeys(row.key for rows in catalog.rows.values() for row in rows))
    # Questions across both tables first: they are the fewest. Small sets are the easiest to keep whole.
    together = [
        group
        for groups in ({relation.entities for relation in related}, set(families(catalog)))
        for group in sorted(groups, key=lambda group: (len(group), sorted(group)))
    ]
    return Splits(keys, together, seed)


def _pick(drafts: list[Draft], wanted: int, word: Word, rng: random.Random) -> list[Picked]:
    """Return up to `wanted` drafts with text and SQL, evenly over buckets; again in other words while they are few."""
    ordered = _round_robin(drafts, rng)
    picked: list[Picked] = []
    for _ in range(MAX_WORDINGS):
        for draft in ordered:
            if len(picked) == wanted:
                return picked
            if worded := word(draft):
                picked.append((draft, *worded))
    return picked


def _round_robin(drafts: list[Draft], rng: random.Random, level: int = 0) -> list[Draft]:
    """Order drafts so that any first part of them is even over the buckets, and within these over the next level."""
    buckets: dict[str, list[Draft]] = {}
    for draft in drafts:
        buckets.setdefault("/".join(draft.bucket.split("/")[: level + 1]), []).append(draft)
    ranked: list[tuple[int, Draft]] = []
    names = sorted(buckets)
    # Where fewer are wanted than there are buckets, it is not the first of the alphabet that are asked about.
    rng.shuffle(names)
    for name in names:
        inner = buckets[name]
        if any(draft.bucket != name for draft in inner):
            inner = _round_robin(inner, rng, level + 1)
        else:
            rng.shuffle(inner)
            inner.sort(key=lambda draft: draft.order)
        ranked += enumerate(inner)
    return [draft for _, draft in sorted(ranked, key=lambda pair: pair[0])]


def _question(draft: Draft, text: str, sql: str, question_id: str, catalog: Catalog) -> Question:
    return Question(
        id=question_id,
        question=text,
        answer=draft.answer,
        lang=catalog.lang,
        sql=sql,
        evidence=draft.evidence,
        task_type=draft.task_type,
        enough=draft.enough,
    )


def count_by_type(questions: Iterable[Question]) -> Counter[str]:
    """Return how many questions of each task type there are."""
    return Counter(str(question.task_type) for question in questions)


__all__ = ["GENERATORS", "count_by_type", "make_questions", "task_types"]
