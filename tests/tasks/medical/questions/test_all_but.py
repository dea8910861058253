"""Questions that name one item of a cell, for all the others or for the whole cell, and parts of several items."""

from __future__ import annotations

from pathlib import Path

import pytest

from sql_agent.database.schema import fold
from sql_agent.schemas import Question
from sql_agent.tasks.medical.banks import banks, spoken
from sql_agent.tasks.medical.questions.catalog import read_catalog
from sql_agent.tasks.medical.sample import SEPARATORS
from tests.support.medical_questions import Made, everything

pytestmark = pytest.mark.slow  # makes all questions of a sample, which takes seconds

Cell = tuple[Question, list[str], list[str]]


def cells(sample: tuple[Path, Made], *types: str) -> list[Cell]:
    """Each question of these types with the items of its cell and those of its answer."""
    path, made = sample
    catalog = read_catalog(path)
    rows = {(row.table, row.row_id): row for rows in catalog.rows.values() for row in rows}
    found = []
    for question in everything(made):
        if question.task_type in types:
            item = question.evidence[0]
            items = catalog.items(rows[item.table, item.row_id], item.field)
            found.append((question, items, question.answer.split(SEPARATORS[question.lang])))
    return found


def says(question: Question, item: str) -> bool:
    """Whether the question names the item, in some words."""
    return any(fold(form) in fold(question.question) for form in spoken(banks(question.lang), item))


def test_who_asks_for_the_others_names_what_they_know_and_gets_the_rest(sample: tuple[Path, Made]) -> None:
    parts = cells(sample, "part_of_field")
    besides = [
        (question, answer)
        for question, items, answer in parts
        if len(answer) == len(items) - 1 and any(says(question, item) for item in set(items) - set(answer))
    ]
    assert len(besides) > 0.03 * len(parts)
    for question, answer in besides:
        assert not any(fold(item) in fold(question.question) for item in answer if len(item) > 3), question


def test_some_who_want_the_whole_cell_name_an_item_of_it(sample: tuple[Path, Made]) -> None:
    fields = cells(sample, "drug_field", "disease_field")
    named = [question for question, items, _ in fields if len(items) > 2 and any(says(question, i) for i in items)]
    assert len(named) > 0.02 * len(fields)
    assert all(set(answer) == set(items) for _, items, answer in fields)


def test_a_third_of_the_parts_are_several_items(sample: tuple[Path, Made]) -> None:
    parts = cells(sample, "part_of_field")
    assert sum(len(answer) > 1 for _, _, answer in parts) > 0.33 * len(parts)
