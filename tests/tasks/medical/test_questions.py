"""The questions about the two samples, and the descriptions that they are made from."""

from __future__ import annotations

from pathlib import Path
from typing import get_args

import pytest

from sql_agent.config.settings import load_settings
from sql_agent.questions.question_check import check_questions, count_quotes, problem_of
from sql_agent.reward.judges.facts_judge import FactsJudge
from sql_agent.schemas import Lang
from sql_agent.tasks.described.words import half
from sql_agent.tasks.medical.medical_task import TASK, description, make_question_files
from tests.support.medical_questions import Made, everything
from tests.support.small_database import make_database

TYPES = {
    *("lookup", "part", "columns", "yes_no", "comparison", "unanswerable", "search", "search_column"),
    *("two_conditions", "negation", "count"),
}


@pytest.mark.slow
def test_all_types_are_asked_with_references_that_follow_from_the_rows(sample: tuple[Path, Made]) -> None:
    database, made = sample
    assert {question.task_type for question in made["train"]} >= TYPES
    with TASK.databases(load_settings(), database) as databases:
        # The generator has checked every question; this test checks each third one once more.
        checked = check_questions(list(everything(made))[::3], databases, TASK.words, FactsJudge(TASK.words))
        quotes = count_quotes(list(everything(made)), databases)
    assert problem_of(checked, "facts") is None
    assert [each.question.id for each in checked if each.failure or each.earned != 1.0] == []
    assert quotes.found == sum(len(question.evidence) for question in everything(made))


@pytest.mark.slow
def test_no_two_splits_share_a_row_or_a_text(sample: tuple[Path, Made]) -> None:
    _, made = sample
    rows = [{(item.table, item.row_id) for q in questions for item in q.evidence} for questions in made.values()]
    assert [one & other for place, one in enumerate(rows) for other in rows[:place]] == [set()] * 3
    texts = [question.question for question in everything(made)]
    assert len(texts) == len(set(texts)) and not any("{" in text for text in texts)


@pytest.mark.slow
def test_the_wordings_of_test_are_in_no_other_split(sample: tuple[Path, Made]) -> None:
    _, made = sample
    lang = made["train"][0].lang
    columns = [column for table in description(lang).tables.values() for column in table.columns.values()]
    held_out = [text for column in columns for text in half(column.ask, held_out=True) if len(column.ask) > 4]
    kept = "\n".join(text for column in columns for text in half(column.ask, held_out=False))
    parts = {max(text.split("{name}"), key=len).strip() for text in held_out}
    own = [part for part in parts if len(part) > 8 and part not in kept]
    lookups = {split: [q.question for q in made[split] if q.task_type == "lookup"] for split in made}
    texts = {split: "\n".join(asked) for split, asked in lookups.items()}
    assert any(part in texts["test"] for part in own)
    assert not [part for part in own if part in texts["train"] or part in texts["val"]]


@pytest.mark.slow
def test_half_of_the_yes_no_questions_are_answered_yes_and_a_tenth_is_unanswerable(sample: tuple[Path, Made]) -> None:
    _, made = sample
    yes = TASK.words[made["train"][0].lang].yes_no[0]
    answers = [question.answer for question in made["train"] if question.task_type == "yes_no"]
    assert 0.4 < answers.count(yes) / len(answers) < 0.6
    unanswerable = [question for question in made["train"] if question.task_type == "unanswerable"]
    assert 0.08 < len(unanswerable) / len(made["train"]) < 0.15


@pytest.mark.parametrize("lang", get_args(Lang))
def test_each_column_of_a_description_has_ways_to_ask(lang: Lang) -> None:
    for table in description(lang).tables.values():
        for name, column in table.columns.items():
            assert len(column.ask) >= 15 or column.kind in {"id", "name"}, name
            assert len(set(column.ask)) == len(column.ask), name


def test_a_database_with_few_columns_is_asked_about_in_its_own_language(tmp_path: Path) -> None:
    made = make_question_files(make_database(tmp_path / "small.db"), tmp_path / "questions", None, per_type=5)
    questions = list(everything(made))
    assert questions and {question.lang for question in questions} == {"en"}
