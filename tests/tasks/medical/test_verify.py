"""A question that its database does not answer is an error."""

from __future__ import annotations

import resource
from pathlib import Path

import pytest

from sql_agent.errors import DataError
from sql_agent.tasks.medical.questions.catalog import read_catalog
from sql_agent.tasks.medical.verify import verify
from tests.support.medical_questions import Made

pytestmark = pytest.mark.slow  # makes all questions of a sample, which takes seconds


def test_a_wrong_question_is_an_error_not_dropped(sample: tuple[Path, Made]) -> None:
    path, made = sample
    catalog = read_catalog(path)
    good = next(question for question in made["train"] if question.task_type == "drug_field")
    quote = good.evidence[0].model_copy(update={"quote": "not there"})
    for change in (
        {"sql": "SELECT nothing FROM drugs_info"},
        {"sql": "SELECT med_name FROM drugs_info WHERE id < 0"},
        {"answer": "something else"},
        {"evidence": (quote,)},
        {"evidence": ()},
        {"task_type": "unanswerable"},
        {"task_type": "aggregate"},
        {"task_type": "keyword_search", "answer": "something else"},
    ):
        with pytest.raises(DataError, match=good.id):
            verify([good.model_copy(update=change)], catalog, path)
    verify([good], catalog, path)


def test_a_disk_without_room_for_the_copy_is_named(sample: tuple[Path, Made]) -> None:
    path, made = sample
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (8_192, limits[1]))
    try:
        with pytest.raises(DataError, match=r"cannot copy .* to .*copy\.db: disk I/O error"):
            verify(made["train"][:1], read_catalog(path), path)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
