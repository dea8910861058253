"""Make train, val and test questions about a described database: draft, split, verify, write."""

from __future__ import annotations

import asyncio
import random
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import islice
from pathlib import Path

from sql_agent.database import Database, Naming, Source, open_database
from sql_agent.database.provenance import judge_case
from sql_agent.errors import DataError, JudgeError
from sql_agent.questions.question_files import write_splits
from sql_agent.questions.rewrite_checks import TaskChecks
from sql_agent.reward.judges.facts import FactsJudge
from sql_agent.reward.judges.items import Reader, Words, is_prose
from sql_agent.schemas import Cell, QueryAnswer, QueryCall, QueryLimits, Question
from sql_agent.tasks.described.catalog import Catalog
from sql_agent.tasks.described.description import Description
from sql_agent.tasks.described.drafts import Draft, Key
from sql_agent.tasks.described.link_questions import LinkQuestions
from sql_agent.tasks.described.row_questions import RowQuestions
from sql_agent.tasks.described.search_questions import SearchQuestions
from sql_agent.tasks.described.table_rows import read_database
from sql_agent.tasks.splits import MAX_CLUSTER, SHARES, Splits
from sql_agent.tasks.task import Task

_PER_TYPE = 120  # questions of each type, of all splits together
_WEIGHTS = {"lookup": 2.0, "search": 1.5, "unanswerable": 1.5}  # how many more of a type
_SEARCHED = {"search", "range", "any_of", "negation"}  # their rows come first to be in one split: they are fewest
_DRAWN = 8  # drafts for each question wanted, because many have rows of several splits
_PATIENT = QueryLimits(deadline_s=30.0)  # a busy machine must not fail a question

Made = dict[str, list[Question]]


def make_question_files(
    description: Description,
    source: Source,
    task: Task,
    folder: Path,
    *,
    seed: int = 0,
    per_type: int | None = None,
    rewrite: Callable[[Made, TaskChecks], Made] | None = None,
    say: Callable[[str], None] = lambda _text: None,
) -> Made:
    """Write train, val and test questions about the database to `folder`, and return them by split.

    `rewrite` rewords the questions, given the checks that a new wording must pass. `say` prints how many drafts failed
    the verification. Raises DataError when no question can be made.
    """
    catalog = Catalog(description, read_database(source, task.schema))
    drafts = _drafts(catalog, random.Random(seed), per_type or _PER_TYPE)
    by_split = _by_split(catalog, drafts, seed)
    with open_database(source, task.schema, _PATIENT, hinted=False) as database:
        verifier = Verifier(catalog, database, task.words[description.lang], task.schema.names)
        counts = {split: max(1, round(share * (per_type or _PER_TYPE))) for split, share in SHARES.items()}
        made = {split: list(_chosen(by_split[split], counts[split], verifier, split)) for split in SHARES}
    if not any(made.values()):
        raise DataError("no question can be made about the database", hint="describe which columns name its rows")
    if verifier.refused:
        reasons = ", ".join(f"{reason} {count}" for reason, count in verifier.refused.most_common())
        say(f"Left out, because the check of their statement failed: {reasons}")
    if rewrite is not None:
        made = rewrite(made, TaskChecks(catalog.names_in, lambda _question: None))
    write_splits(folder, made)
    return made


def _drafts(catalog: Catalog, chosen: random.Random, per_type: int) -> list[Draft]:
    """Return drafts of all types with different texts."""
    about_rows, searches = RowQuestions(catalog, chosen), SearchQuestions(catalog, chosen)
    linked = LinkQuestions(catalog, chosen)
    makers: dict[str, Callable[[], Iterator[Draft]]] = {
        "lookup": about_rows.lookup,
        "part": about_rows.part,
        "columns": about_rows.columns,
        "yes_no": about_rows.yes_no,
        "comparison": about_rows.comparison,
        "unanswerable": about_rows.unanswerable,
        "search": searches.search,
        "range": searches.range,
        "any_of": searches.any_of,
        "two_conditions": searches.two_conditions,
        "negation": searches.negation,
        "count": searches.count,
        "group": searches.group,
        "superlative": searches.superlative,
        "linked": linked.linked,
        "linked_rows": linked.linked_rows,
    }
    found: dict[str, Draft] = {}
    for name, make in makers.items():
        wanted = round(_DRAWN * per_type * _WEIGHTS.get(name, 1.0))
        for draft in islice(make(), 4 * wanted):
            found.setdefault(draft.question, draft)
            wanted -= 1
            if not wanted:
                break
    return list(found.values())


def _by_split(catalog: Catalog, drafts: Iterable[Draft], seed: int) -> dict[str, list[Draft]]:
    """Return the drafts of each split. No two splits share a row; a draft without rows counts by its statement."""
    drafts = list(drafts)
    keys: list[Key] = [row.key for rows in catalog.rows.values() for row in rows]
    several = [draft.rows for draft in sorted(drafts, key=lambda draft: draft.task_type not in _SEARCHED)]
    rows_of_a_table = len(keys) / len(catalog.rows)
    splits = Splits(keys, several, seed, max_cluster=max(3, min(MAX_CLUSTER, round(0.07 * rows_of_a_table))))
    found: dict[str, list[Draft]] = {split: [] for split in SHARES}
    for draft in drafts:
        split = splits.of(draft.rows or {("", str(draft.statement))})
        if split is not None:
            found[split].append(draft)
    return found


def _chosen(drafts: Sequence[Draft], per_type: int, verifier: Verifier, split: str) -> Iterator[Question]:
    """Yield up to `per_type` verified questions of each type, from each table and column in turn."""
    counts: Counter[str] = Counter()
    for draft in _in_turn(drafts):
        if counts[draft.task_type] < round(per_type * _WEIGHTS.get(draft.task_type, 1.0)):
            question = verifier.question(draft, f"{split}-{draft.task_type}-{counts[draft.task_type] + 1}")
            if question is not None:
                counts[draft.task_type] += 1
                yield question


def _in_turn(drafts: Sequence[Draft]) -> list[Draft]:
    """Return the drafts so that the first ones of a type are about different tables and columns, answers included."""
    seen: Counter[tuple[object, ...]] = Counter()
    ranked = []
    for place, draft in enumerate(drafts):
        outputs = tuple(output.column for output in draft.statement.outputs)
        tested = tuple((test.column, test.operator) for test in draft.statement.where)
        about = (draft.task_type, draft.statement.table, outputs, tested)
        answer = draft.facts if draft.task_type in {"yes_no", "unanswerable"} else ()
        seen[about] += 1
        seen[draft.task_type, answer] += 1 if answer else 0
        ranked.append((max(seen[about], seen[draft.task_type, answer] // 40), place, draft))
    return [draft for _, _, draft in sorted(ranked, key=lambda item: item[:2])]


class Verifier:
    """Turns drafts into questions, and refuses those whose statement, evidence or reference is wrong."""

    def __init__(self, catalog: Catalog, database: Database, words: Words, namings: Mapping[str, Naming]) -> None:
        self._catalog, self._database, self._namings = catalog, database, namings
        self._judge = FactsJudge({catalog.description.lang: words})
        self._reader = Reader(words)
        self.refused: Counter[str] = Counter()

    def question(self, draft: Draft, number: str) -> Question | None:
        """Return the question of a draft; None, and the reason in `refused`, where a check fails."""
        sql = draft.statement.sql(self._catalog.database)
        question = Question(
            id=number,
            question=draft.question,
            answer=self._catalog.words["ends"].join(draft.facts),
            lang=self._catalog.description.lang,
            sql=sql,
            evidence=tuple(dict.fromkeys(draft.evidence)),
            task_type=draft.task_type,
            enough=draft.enough,
        )
        found = self._database.query(sql)
        problem = self._problem_of_rows(draft, found) or self._problem_of_reference(question, found)
        if problem is not None:
            self.refused[problem] += 1
        return question if problem is None else None

    @staticmethod
    def _problem_of_rows(draft: Draft, found: QueryAnswer) -> str | None:
        if found.error is not None:
            return f"the statement failed ({found.error.kind})"
        if found.truncated:
            return "the result is too large"
        ordered = draft.statement.order_by is not None
        return None if _same_rows(found.records, draft.expected, ordered=ordered) else "other rows than expected"

    def _problem_of_reference(self, question: Question, found: QueryAnswer) -> str | None:
        if is_prose(question.answer, question.lang) and question.task_type != "unanswerable":
            return "the answer is prose"
        calls = (QueryCall(sql=question.sql or "", answer=found, seconds=0.0),)
        case = judge_case(question, question.full_answer, calls, self._database, self._namings, self._reader)
        if case.evidence_read is not None and len(case.evidence_read) < len(question.evidence):
            return "the statement does not read the evidence"
        try:
            earned = asyncio.run(self._judge.grade(case)).score
        except JudgeError:
            return "the reference cannot be graded"
        return None if earned == 1.0 else "the reference is graded below 1"


def _same_rows(found: Sequence[tuple[Cell, ...]], expected: Sequence[tuple[Cell, ...]], *, ordered: bool) -> bool:
    texts = [[tuple(map(str, row)) for row in rows] for rows in (found, expected)]
    return texts[0] == texts[1] if ordered else Counter(texts[0]) == Counter(texts[1])


def count_by_type(questions: Iterable[Question]) -> Mapping[str, int]:
    """Return the number of questions of each type."""
    return Counter(question.task_type or "" for question in questions)
