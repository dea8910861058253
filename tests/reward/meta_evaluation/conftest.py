"""Gradings of the shipped answers by a judge that often fails."""

from __future__ import annotations

import asyncio

import pytest

from sql_agent.reward.meta_evaluation.dataset import shipped
from sql_agent.reward.meta_evaluation.evaluate import Evaluation, Grading, grade_all
from tests.support.judge_evaluation import OftenFailing, measured


@pytest.fixture(scope="session")
def graded_by_often_failing() -> tuple[OftenFailing, list[Grading], Evaluation]:
    judge = OftenFailing()
    gradings = asyncio.run(grade_all(judge, shipped("labels"), shipped("attacks")))
    return judge, gradings, measured(gradings, judge=judge.name)
