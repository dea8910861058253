"""The reference judge agrees with people on the shipped answers, and none of the shipped attacks pays."""

from __future__ import annotations

from typing import Any

import pytest

from sql_agent.reward.judges.reference.judge import grade
from sql_agent.reward.meta_evaluation.agreement import over_credit, spearman
from sql_agent.reward.meta_evaluation.dataset import shipped
from sql_agent.reward.meta_evaluation.evaluate import ATTACK_LIMIT
from tests.support.judge_evaluation import array


def test_the_reference_judge_orders_answers_as_people_do() -> None:
    labels = shipped("labels")
    assert len(labels) >= 200
    for lang in ("en", "zh"):
        cases = [case for case in labels if case.question.lang == lang]
        scores = array(*(grade(case.case).score for case in cases))
        assert spearman(scores, array(*(case.label for case in cases))) >= 0.8
        assert over_credit(scores, array(*(case.label for case in cases))) <= 5


@pytest.mark.parametrize("case", shipped("attacks"), ids=lambda case: f"{case.question.lang}-{case.kind}")
def test_no_attack_pays(case: Any) -> None:
    assert grade(case.case).score <= ATTACK_LIMIT
