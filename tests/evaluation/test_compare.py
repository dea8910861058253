"""Two models are compared on the questions that both answered, and only on those."""

from __future__ import annotations

import pytest

from sql_agent.errors import ConfigError, DataError
from sql_agent.evaluation.folder import About
from sql_agent.evaluation.statistics import check_comparable, compare, mcnemar
from sql_agent.schemas import RolloutRecord
from tests.support.records import record


def records(*scores: float | None) -> dict[tuple[str, str], RolloutRecord]:
    return {("test", f"q{i}"): record(i, score, task_type="drug_field") for i, score in enumerate(scores)}


def test_the_questions_that_flipped_are_named_and_counted() -> None:
    found = compare("a", records(0.0, 0.0, 0.0, 1.0, 1.0, 0.9), "b", records(1.0, 1.0, 0.5, 0.0, 1.0, 0.8))
    test = found.sets["test"]
    assert (test.gained, test.lost, test.p) == (2, 1, mcnemar(2, 1))
    assert test.accurate == (0.5, 4 / 6)
    assert test.accuracy.mean == pytest.approx(1 / 6)
    assert test.score.mean == pytest.approx((1.0 + 1.0 + 0.5 - 1.0 + 0.0 - 0.1) / 6)
    assert [(flip.id, flip.gained) for flip in test.flips] == [("q0", True), ("q1", True), ("q3", False)]


def test_questions_without_a_partner_are_counted_and_left_out() -> None:
    second = records(1.0, None, 1.0)
    second["test", "q2"] = record(2, 1.0, answer="another reference")
    second["other", "q0"] = record(0, 1.0)
    found = compare("a", records(1.0, 1.0, 1.0, 1.0), "b", second)
    assert found.sets["test"].questions == 1
    assert found.unpaired == 4


def test_models_without_a_common_question_cannot_be_compared() -> None:
    with pytest.raises(DataError, match="no graded question in common"):
        compare("a", records(1.0), "b", {("other", "q0"): record(0)})


def test_scores_of_different_judges_are_not_compared() -> None:
    about = About(model="a", judge="facts/3", version="0", started="now", settings={})
    check_comparable([about, about.model_copy(update={"model": "b"})])
    with pytest.raises(ConfigError, match=r"a by facts/3; b by llm/1"):
        check_comparable([about, about.model_copy(update={"model": "b", "judge": "llm/1"})])
