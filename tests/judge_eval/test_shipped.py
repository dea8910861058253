"""None of the attacks that we ship pays with the judge `facts`."""

from __future__ import annotations

import asyncio

import pytest

from sql_agent.judge_eval.answers import LabelledCase, load_labelled
from sql_agent.judge_eval.evaluation import ATTACK_LIMIT
from sql_agent.reward.judges.facts_judge import FactsJudge
from sql_agent.tasks.medical.medical_task import TASK


@pytest.mark.parametrize("attack", load_labelled("attacks"), ids=lambda case: f"{case.question.lang}-{case.kind}")
def test_no_attack_pays(attack: LabelledCase) -> None:
    assert asyncio.run(FactsJudge(TASK.words).grade(attack.case)).score <= ATTACK_LIMIT
