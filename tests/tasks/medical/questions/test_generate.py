"""Questions made from a database: each can be answered by its gold SQL, and no two splits share an entity."""

from __future__ import annotations

import asyncio
import lzma
import os
import re
import sqlite3
from pathlib import Path
from time import monotonic
from typing import get_args

import pytest

from sql_agent.cli.data import main
from sql_agent.database import open_database
from sql_agent.questions.question_files import load_questions
from sql_agent.reward import JudgeCase
from sql_agent.reward.judges.facts import FactsJudge
from sql_agent.schemas import QueryCall, QueryLimits, Question
from sql_agent.tasks.medical.medical_task import TASK
from sql_agent.tasks.medical.phrasing import wording
from sql_agent.tasks.medical.questions.catalog import Catalog, read_catalog
from sql_agent.tasks.medical.questions.draft import MAX_ITEMS, TaskType
from sql_agent.tasks.medical.questions.generate import count_by_type, make_questions
from sql_agent.tasks.medical.sample import SEPARATORS
from sql_agent.tasks.medical.tables import NAME_COLUMNS, SCHEMA
from sql_agent.tasks.medical.verify import verify
from tests.support.medical_questions import Made, everything

pytestmark = pytest.mark.slow  # makes all questions of a sample, which takes seconds

REAL = Path(__file__).parents[5] / "shared/data/medical_zh.db.xz"
TASK_TYPES = get_args(TaskType)
# What the agent sees of a result unless a user sets more; a busy machine is no fault of a question.
AGENT_LIMITS = QueryLimits(deadline_s=30.0, max_rows=20, max_chars=1500)


def test_a_search_never_counts_what_says_the_opposite(sample: tuple[Path, Made]) -> None:
    path, made = sample
    searches = [q for split in made.values() for q in split if q.task_type in {"aggregate", "keyword_search"}]
    assert searches
    with sqlite3.connect(path) as connection:
        for question in searches:
            last = question.statements[-1]
            for keyword in re.findall(r"LIKE '%((?:[^']|'')+)%'", last):
                for opposite in (f"非{keyword}", f"不{keyword}", f"non-{keyword}", f"not {keyword}", f"no {keyword}"):
                    sql = re.sub(r"LIKE '%((?:[^']|'')+)%'", f"LIKE '%{opposite}%'", last)
                    rows = connection.execute(sql).fetchall()
                    assert rows in ([], [(0,)]), f"{question.question!r} also finds {opposite!r}"


def test_gold_sql_returns_the_evidence_and_the_reference_answer_earns_full_marks(sample: tuple[Path, Made]) -> None:
    path, made = sample
    judge = FactsJudge(TASK.words)
    with open_database(path, SCHEMA, AGENT_LIMITS) as database:
        # Every third, which is a thousand of all types; a run checks its own before it starts.
        for question in list(everything(made))[::3]:
            calls = tuple(QueryCall(sql=sql, answer=database.query(sql), seconds=0.0) for sql in question.statements)
            cells = [str(cell) for call in calls for row in call.answer.records for cell in row if cell is not None]
            if question.task_type == "unanswerable":
                assert not cells
            elif question.task_type == "aggregate":
                assert cells[-1:] == [question.answer]
            else:
                assert all(any(item.quote in cell for cell in cells) for item in question.evidence), question.id
            verdict = asyncio.run(judge.grade(JudgeCase(question=question, answer=question.full_answer, calls=calls)))
            if not any(call.answer.truncated for call in calls):
                assert verdict.score >= 0.97, f"{question.question!r}: {question.answer!r} {verdict}"


@pytest.fixture(scope="module")
def real(tmp_path_factory: pytest.TempPathFactory) -> Path:
    if not REAL.exists():
        pytest.skip("the large development database is not beside this checkout")
    path = tmp_path_factory.mktemp("real") / "medical_zh.db"
    path.write_bytes(lzma.decompress(REAL.read_bytes()))
    return path


def entities(question: Question, catalog: Catalog) -> set[tuple[str, str]]:
    """All rows that the SQL names or the evidence holds; an absent name counts like a row."""
    names = {(item.table, item.row_id): "" for item in question.evidence}
    found = {row.key for rows in catalog.rows.values() for row in rows if (row.table, row.row_id) in names}
    literals = [text.replace("''", "'").strip("%") for text in re.findall(r"'((?:[^']|'')*)'", question.sql or "")]
    found |= {(table, text) for text in literals for table in NAME_COLUMNS if catalog.find(table, text)}
    if question.task_type == "unanswerable":
        found.add(("asked", literals[0]))
    return found


def assert_disjoint(made: Made, catalog: Catalog) -> None:
    by_split = {
        split: set().union(*(entities(question, catalog) for question in questions))
        for split, questions in made.items()
    }
    train, val, test = by_split.values()
    assert not train & val
    assert not train & test
    assert not val & test


def test_each_split_of_the_sample_has_each_type(sample: tuple[Path, Made]) -> None:
    _, made = sample
    for questions in made.values():
        assert set(count_by_type(questions)) == set(TASK_TYPES)
    assert len(made["train"]) >= 900
    assert len(made["val"]) >= 100
    assert len(made["test"]) >= 200


def test_no_two_splits_share_an_entity(sample: tuple[Path, Made]) -> None:
    database, made = sample
    assert_disjoint(made, read_catalog(database))


def test_ids_and_texts_come_once(sample: tuple[Path, Made]) -> None:
    _, made = sample
    questions = list(everything(made))
    assert len({question.id for question in questions}) == len(questions)
    assert len({question.question for question in questions}) == len(questions)
    assert all(re.fullmatch(rf"{q.lang}-{q.task_type}-\d{{6}}", q.id) for q in questions)


def test_gold_sql_answers_within_the_limits_of_the_agent(sample: tuple[Path, Made]) -> None:
    path, made = sample
    verify(everything(made), read_catalog(path), path, AGENT_LIMITS)


def test_quotes_are_substrings_of_the_field(sample: tuple[Path, Made]) -> None:
    path, made = sample
    connection = sqlite3.connect(path)
    for question in everything(made):
        assert bool(question.evidence) == (question.task_type != "unanswerable")
        for item in question.evidence:
            query = f"SELECT {item.field} FROM {item.table} WHERE id = ?"
            assert item.quote in connection.execute(query, (item.row_id,)).fetchone()[0]
    connection.close()


def test_answers_are_facts_that_the_evidence_holds(sample: tuple[Path, Made]) -> None:
    _, made = sample
    for question in everything(made):
        facts = question.answer.split(SEPARATORS[question.lang])
        assert len(facts) <= MAX_ITEMS
        assert len(set(facts)) == len(facts)
        quotes = [item.quote for item in question.evidence]
        several = question.task_type == "two_hops" and len({item.row_id for item in question.evidence}) > 1
        if question.task_type == "aggregate":
            assert question.answer == str(len(quotes))
        elif question.task_type == "yes_no":
            assert facts in ([wording(question.lang).yes], [wording(question.lang).no])
        elif question.task_type == "comparison" or several:
            assert all(any(quote in fact for fact in facts) for quote in quotes)
        elif question.task_type == "unanswerable":
            assert facts == [wording(question.lang).no_answer]
        else:
            assert facts == quotes


@pytest.mark.slow
def test_a_real_noisy_database(real: Path) -> None:
    catalog = read_catalog(real)
    assert catalog.lang == "zh"
    made = make_questions(catalog, per_type=20)
    for questions in made.values():
        assert set(count_by_type(questions)) == set(TASK_TYPES)
    verify(everything(made), catalog, real, AGENT_LIMITS)
    assert_disjoint(made, catalog)


@pytest.mark.skipif("TEST_SCALE" not in os.environ, reason="takes half a minute: set TEST_SCALE=1")
def test_five_thousand_questions_in_a_minute(real: Path, tmp_path: Path) -> None:
    start = monotonic()
    assert main(["questions", "--db", str(real), "--out", str(tmp_path)]) == 0
    assert monotonic() - start < 60
    assert len(load_questions(tmp_path / "qa_dataset.jsonl")) >= 5000
