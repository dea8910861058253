"""Searches ask as people do: for one of two things, in everyday words, with words beside what is searched for."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from sql_agent.database import open_database
from sql_agent.schemas import QueryLimits, Question
from sql_agent.tasks.medical.banks import banks
from sql_agent.tasks.medical.questions.catalog import Catalog
from sql_agent.tasks.medical.questions.draft import Condition
from sql_agent.tasks.medical.questions.generate import make_questions
from sql_agent.tasks.medical.tables import SCHEMA
from tests.support.medical_questions import Made, everything

_LIKE = re.compile(r"(\w+) LIKE '%((?:[^']|'')+)%'")


def searches(made: Made) -> list[Question]:
    types = {"keyword_search", "aggregate", "two_conditions", "any_of"}
    return [question for question in everything(made) if question.task_type in types]


@pytest.mark.slow
def test_some_searches_are_for_one_of_two_things_and_either_finds_rows_of_its_own(sample: tuple[Path, Made]) -> None:
    path, made = sample
    either = [question for question in searches(made) if " OR " in question.statements[-1]]
    assert len(either) > 0.03 * len(searches(made))
    with open_database(path, SCHEMA, QueryLimits(deadline_s=30.0)) as database:
        for question in either:
            both = database.query(question.statements[-1].replace("COUNT(*)", "id")).count
            start, _, parts = question.statements[-1].replace("COUNT(*)", "id").partition(" WHERE ")
            assert all(0 < database.query(f"{start} WHERE {part}").count < both for part in parts.split(" OR "))


@pytest.mark.slow
def test_what_a_question_says_otherwise_or_with_words_beside_it_is_looked_for_once_more(
    sample: tuple[Path, Made],
) -> None:
    path, made = sample
    again = [question for question in searches(made) if len(question.statements) > 1]
    searched = [q for q in again if "_name" not in q.statements[0].partition(" WHERE ")[2]]
    assert searched
    with open_database(path, SCHEMA, QueryLimits(deadline_s=30.0)) as database:
        for question in searched:
            first, last = question.statements
            assert not any(any(row) for row in database.query(first).records), question
            assert [column for column, _ in _LIKE.findall(first)] == [column for column, _ in _LIKE.findall(last)]


@pytest.mark.slow
def test_most_searches_list_several_rows(sample: tuple[Path, Made]) -> None:
    _, made = sample
    found = [question for question in made["train"] if question.task_type == "keyword_search"]
    assert sum(len(question.evidence) > 1 for question in found) > 0.5 * len(found)


def test_words_that_stand_glued_to_an_item_are_not_searched_for() -> None:
    """孕妇禁用 is asked as "药 that 孕妇 cannot take", and LIKE '%孕妇%' answers it."""
    rules = ["孕妇禁用", "孕妇忌服；高血压患者慎用", "孕妇及糖尿病患者禁服", "糖尿病患者禁用", "", "儿童禁用"]
    drugs: list[dict[str, object]] = [
        {"id": number, "med_name": f"药品{name}号", "contraindications": rule, "form": form, "component": name}
        for number, (name, rule, form) in enumerate(
            zip("甲乙丙丁戊己", rules, ["片剂", "糖浆剂", "片剂", "糖浆剂", "片剂", "栓剂"], strict=True)
        )
    ]
    catalog = Catalog({"drugs_info": drugs, "disease": [{"id": 1, "disease_name": "痛风"}]}, "zh")
    made = make_questions(catalog, per_type=40, style="natural")
    asked = {
        word
        for question in everything(made)
        for column, word in _LIKE.findall(question.statements[-1])
        if column == "contraindications"
    }
    assert {"孕妇", "糖尿病"} <= asked
    assert not {"孕妇禁用", "孕妇忌服"} & asked


def test_one_of_two_words_is_one_condition() -> None:
    fever = Condition("drugs_info", "indication", "发热", other="头痛")
    assert fever.sql == "indication LIKE '%发热%' OR indication LIKE '%头痛%'"
    assert banks("zh").searches.either.train
