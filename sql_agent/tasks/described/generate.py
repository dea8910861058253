"""Make train, val and test questions about a described database, and write their files."""

from __future__ import annotations

import os
import random
import sqlite3
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, contextmanager
from dataclasses import replace
from itertools import islice, zip_longest
from pathlib import Path
from tempfile import TemporaryDirectory

from sql_agent.config.settings_schema import DatabaseSettings
from sql_agent.database import Source, open_database
from sql_agent.database.schema import quoted
from sql_agent.database.sqlite.connection import read_only_connection
from sql_agent.errors import DataError
from sql_agent.questions.question_files import write_splits
from sql_agent.questions.rewrite_checks import NamesIn
from sql_agent.schemas import Question, Style
from sql_agent.tasks.described.catalog import Catalog
from sql_agent.tasks.described.description import Description, plain
from sql_agent.tasks.described.detail_questions import DetailQuestions
from sql_agent.tasks.described.drafts import Draft, Key
from sql_agent.tasks.described.link_questions import LinkQuestions
from sql_agent.tasks.described.names import OtherNames
from sql_agent.tasks.described.question_maker import QuestionMaker
from sql_agent.tasks.described.search_questions import SearchQuestions
from sql_agent.tasks.described.splits import MAX_CLUSTER, SHARES, Splits
from sql_agent.tasks.described.table_questions import TableQuestions
from sql_agent.tasks.described.table_rows import read_database
from sql_agent.tasks.described.unanswerable_questions import UnanswerableQuestions
from sql_agent.tasks.described.words import wordings
from sql_agent.tasks.task import Task

_PER_TYPE = 120  # number of questions of each type, in all splits together
# Factors of `_PER_TYPE` for types of questions that people ask more or less often.
_WEIGHTS = {
    "lookup": 2.5,
    "yes_no": 2.0,
    "part": 1.5,
    "mention": 1.5,
    "comparison": 0.5,
    "same": 0.5,
    "which": 0.5,
    "search": 2.0,
    "unanswerable": 1.7,
    "search_column": 0.7,
    "two_hops": 0.6,
    "columns": 0.4,
    "count": 0.7,
    "negation": 0.2,
    "any_of": 0.3,
    "listing": 2.5,
    "aggregate": 1.5,
    "groups": 1.5,
    "average": 0.5,
    "unlinked": 0.7,
}
# Types with few drafts. The rows of each of their drafts are put into one split before those of other drafts.
_SEARCHED = {"search", "related", "range", "any_of", "negation"}
_DRAWN = 8  # number of drafts for each wanted question, because the rows of many drafts are in several splits
_THREADS = 4
# The default limits of a run, with a longer deadline: no question may fail because the machine is busy.
PATIENT = DatabaseSettings().limits().model_copy(update={"deadline_s": 30.0})

Made = dict[str, list[Question]]


def make_question_files(
    description: Description,
    source: Source,
    task: Task,
    folder: Path,
    *,
    seed: int = 0,
    per_type: int | None = None,
    style: Style = "mixed",
    rewrite: Callable[[Made, NamesIn], Made] | None = None,
    say: Callable[[str], None] = lambda _text: None,
) -> Made:
    """Write train, val and test questions about the database to `folder`, and return them by split.

    `rewrite` rewords the questions, given a function that finds names of rows. `say` prints how many drafts failed
    the verification. Raises DataError when no question can be made.
    """
    if style == "template":
        description = plain(description, wordings(description.lang)["ask"])
    catalog = Catalog(description, read_database(source, task.schema))
    chosen, per_type = random.Random(seed), per_type or _PER_TYPE
    by_split = _by_split(catalog, _drafts(catalog, chosen, per_type, random.Random(f"{seed} tables")), seed)
    words, namings, is_plain = task.words[description.lang], task.schema.names, style == "template"
    other_names = None if is_plain else OtherNames(catalog, namings)
    groups = [
        (split, name, drafts, round(max(1, round(share * per_type)) * _WEIGHTS.get(name, 1.0)))
        for split, share in SHARES.items()
        for name, drafts in _by_type(_in_turn(by_split[split], description)).items()
    ]
    with (
        # Threads, because each waits for statements that other processes run. They end when the database is closed.
        ThreadPoolExecutor(min(_THREADS, os.cpu_count() or 1)) as threads,
        _indexed_copy(source, description) as copy,
        open_database(copy, task.schema, PATIENT) as database,
    ):

        def questions(group: tuple[str, str, list[Draft], int]) -> tuple[str, list[Question], Counter[str]]:
            """Make the questions of one type. The random choices of a type do not depend on the other types."""
            split, name, drafts, most = group
            chosen = random.Random(f"{seed} {split} {name}")
            maker = QuestionMaker(catalog, database, words, namings, chosen=chosen, names=other_names)
            return split, _questions(drafts, most, maker, split), maker.refused

        found = list(threads.map(questions, groups))
    made = _without_repetitions((split, of_type) for split, of_type, _ in found)
    if not any(made.values()):
        raise DataError("no question can be made about the database", hint="describe which columns name its rows")
    if refused := sum((counts for *_, counts in found), Counter[str]()):
        reasons = ", ".join(f"{reason} {count}" for reason, count in refused.most_common())
        say(f"Questions left out, because a check of their statement failed: {reasons}")
    if rewrite is not None:
        made = rewrite(made, catalog.names_in)
    write_splits(folder, made)
    return made


@contextmanager
def _indexed_copy(source: Source, description: Description) -> Iterator[Source]:
    """Yield a copy of a SQLite file with an index on the names of rows, for speed; yield a server's URL unchanged."""
    if not isinstance(source, Path):
        yield source
        return
    with TemporaryDirectory() as folder:
        copy = Path(folder) / source.name
        with closing(read_only_connection(source)) as opened, closing(sqlite3.connect(copy)) as target:
            opened.backup(target)
            for name, table in description.tables.items():
                if table.name is not None:
                    index = f"{quoted(f'names of {name}')} ON {quoted(name)} ({quoted(table.name)})"
                    target.execute(f"CREATE INDEX {index}")
            target.commit()
        yield copy


def _drafts(catalog: Catalog, chosen: random.Random, per_type: int, many_rows: random.Random) -> list[Draft]:
    """Return drafts of all types. Only table questions use the random source `many_rows`; the others use `chosen`."""
    rows, searches = DetailQuestions(catalog, chosen), SearchQuestions(catalog, chosen)
    unanswerable = UnanswerableQuestions(catalog, chosen)
    links, tables = LinkQuestions(catalog, chosen), TableQuestions(catalog, many_rows)
    makers: list[Callable[[], Iterator[Draft]]] = [
        *(rows.lookup, rows.part, rows.columns, rows.yes_no, rows.comparison),
        *(unanswerable.unanswerable, rows.elsewhere, rows.mention, rows.same, rows.which),
        *(searches.search, searches.related, searches.search_column, searches.range, searches.any_of),
        *(searches.two_conditions, searches.negation, searches.count, searches.group, searches.superlative),
        *(links.linked, links.linked_rows, links.two_hops, tables.listing, tables.aggregate, tables.per_group),
        *(tables.groups, tables.best, tables.average, tables.sets, tables.unlinked),
    ]
    found: dict[tuple[object, ...], Draft] = {}
    for make in makers:
        name = make.__name__
        wanted = round(_DRAWN * per_type * _WEIGHTS.get(name, 1.0))
        for draft in islice(make(), 4 * wanted):
            if catalog.table(draft.statement.table).asked.get(name) == ():
                continue
            wording = draft.wording
            found.setdefault(
                (name, str(draft.statement), wording.templates, tuple(wording.slots.values())),
                replace(draft, task_type=name),
            )
            wanted -= 1
            if not wanted:
                break
    return list(found.values())


def _by_split(catalog: Catalog, drafts: Iterable[Draft], seed: int) -> dict[str, list[Draft]]:
    """Return the drafts of each split. No two splits share a row. A draft without rows is assigned by its statement."""
    drafts = list(drafts)
    keys: list[Key] = [row.key for rows in catalog.rows.values() for row in rows]
    together = [draft.rows for draft in sorted(drafts, key=lambda draft: draft.task_type not in _SEARCHED)]
    rows_of_a_table = len(keys) / len(catalog.rows)
    splits = Splits(keys, together, seed, max_cluster=max(3, min(MAX_CLUSTER, round(0.07 * rows_of_a_table))))
    found: dict[str, list[Draft]] = {split: [] for split in SHARES}
    for draft in drafts:
        split = splits.of(draft.rows or {("", str(draft.statement))})
        if split is not None:
            found[split].append(draft)
    return found


def _by_type(drafts: Iterable[Draft]) -> dict[str, list[Draft]]:
    found: dict[str, list[Draft]] = {}
    for draft in drafts:
        found.setdefault(draft.task_type, []).append(draft)
    return found


def _questions(drafts: Sequence[Draft], most: int, maker: QuestionMaker, split: str) -> list[Question]:
    """Return at most `most` verified questions about `drafts`, which are of one type."""
    made: list[Question] = []
    for draft in drafts:
        if len(made) == most:
            break
        question = maker.question(draft, f"{split}-{draft.task_type}-{len(made) + 1}", held_out=split == "test")
        if question is not None:
            made.append(question)
    return made


def _without_repetitions(found: Iterable[tuple[str, list[Question]]]) -> Made:
    """Return the questions by split, each text once; the types of a split take turns."""
    texts: set[str] = set()
    kept: dict[str, list[list[Question]]] = {split: [] for split in SHARES}
    for split, questions in found:
        kept[split].append([question for question in questions if question.question not in texts])
        texts.update(question.question for question in questions)
    return {
        split: [question for turn in zip_longest(*of_types) for question in turn if question is not None]
        for split, of_types in kept.items()
    }


def _in_turn(drafts: Sequence[Draft], description: Description) -> list[Draft]:
    """Return the drafts in a varied order: of each type, repeated tables and columns, or answers, come later.

    The drafts about a column with a `share` of 2 come twice as often as those about others.
    """
    seen: Counter[tuple[object, ...]] = Counter()
    ranks = []
    for draft in drafts:
        outputs = tuple(output.column for each in draft.statements for output in each.outputs)
        tested = tuple((test.column, test.operator) for test in draft.statement.where)
        wording, asked = draft.wording, draft.statement.outputs[-1]
        item = wording.slots.get("item")
        about = (draft.task_type, draft.statement.table, outputs, tested, wording.templates, item)
        column = description.tables[asked.table or draft.statement.table].columns.get(asked.column)
        same = 0 if draft.from_rows else seen[draft.task_type, draft.facts]
        share = len(wording.templates) / 12 if draft.task_type == "part" else 1.0  # more wordings: more often
        share *= column.share if column else 1.0
        again = same // 40 if draft.task_type in {"yes_no", "unanswerable"} else 5 * same
        seen[about] += 1
        seen[draft.task_type, draft.facts] += 1
        ranks.append(max(seen[about] / share, again))
    return [drafts[place] for place in sorted(range(len(drafts)), key=ranks.__getitem__)]


def count_by_type(questions: Iterable[Question]) -> Mapping[str, int]:
    return Counter(question.task_type or "" for question in questions)
