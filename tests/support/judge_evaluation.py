"""A judge that often fails, and evaluations of scores that are given."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import numpy as np

from sql_agent.errors import JudgeError
from sql_agent.judge_eval.dataset import shipped
from sql_agent.judge_eval.evaluate import Grading, JudgeEvaluation, measure
from sql_agent.reward.judges.base import JudgeCase, Verdict
from sql_agent.reward.judges.facts import FactsJudge
from sql_agent.tasks.medical.medical_task import TASK

MARKUP = "<img src=x onerror=document.title='owned'>"


def array(*values: float) -> Any:
    return np.array(values, dtype=np.float64)


class OftenFailing:
    """Grades as the reference judge does, but not every case; its name and its reasons hold markup."""

    name = f"panel {MARKUP}"
    identity = name

    def __init__(self) -> None:
        self.at_once = self.most_at_once = 0

    async def grade(self, case: JudgeCase) -> Verdict:
        self.at_once += 1
        self.most_at_once = max(self.most_at_once, self.at_once)
        await asyncio.sleep(0)
        self.at_once -= 1
        if case.question.id.endswith("7"):
            raise JudgeError(f"no grade within 60 s {MARKUP}")
        verdict = await FactsJudge(TASK.words).grade(case)
        return Verdict(
            score=0.4 + 0.6 * verdict.score,
            criteria={**verdict.criteria, "<b>by_heart</b>": 0.5},
            reason=f"{MARKUP} {verdict.reason}",
        )


def measured(gradings: list[Grading], *, judge: str = "some") -> JudgeEvaluation:
    return measure(gradings, judge=judge, labels_file="labels", attacks_file="attacks", max_failed_share=0.05)


def given_by(judge: Callable[[float], float]) -> list[Grading]:
    """The shipped labels, each with the score that `judge` makes of its label."""
    return [Grading("labels", case, Verdict(score=judge(case.label))) for case in shipped("labels")]
