"""A judge that often fails, and evaluations of scores that are given."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import numpy as np

from sql_agent.errors import JudgeError
from sql_agent.judge_eval.answers import load_labelled
from sql_agent.judge_eval.evaluation import Evaluation, Grading, measure
from sql_agent.reward import Judge, JudgeCase, Verdict
from sql_agent.reward.judges.facts_judge import FactsJudge
from sql_agent.tasks.medical.medical_task import TASK
from tests.support.paracetamol import Fixed


def array(*values: float) -> Any:
    return np.array(values, dtype=np.float64)


class OftenFailing:
    """Grades as the reference judge does, but not every case."""

    name = identity = "panel"

    def __init__(self) -> None:
        self.at_once = self.most_at_once = 0

    async def grade(self, case: JudgeCase) -> Verdict:
        self.at_once += 1
        self.most_at_once = max(self.most_at_once, self.at_once)
        await asyncio.sleep(0)
        self.at_once -= 1
        if case.question.id.endswith("7"):
            raise JudgeError("no grade within 60 s")
        verdict = await FactsJudge(TASK.words).grade(case)
        return Verdict(score=0.4 + 0.6 * verdict.score, criteria=verdict.criteria, reason=verdict.reason)


def measured(gradings: list[Grading], judge: Judge | None = None) -> Evaluation:
    return measure(judge or Fixed("some"), gradings, files=["mine"], max_failed_share=0.05)


def given_by(judge: Callable[[float], float]) -> list[Grading]:
    """The shipped labels, each with the score that `judge` makes of its label."""
    return [
        grading("labels", case.kind, case.label, judge(case.label), n) for n, case in enumerate(load_labelled("labels"))
    ]


def grading(name: Any, kind: str, due: float, score: float | None, number: int = 0, error: str = "") -> Grading:
    return Grading(
        set=name, kind=kind, question_id=str(number), task_type="drug_field", lang="en", answer="x", due=due,
        score=score, error=error,
    )  # fmt: skip
