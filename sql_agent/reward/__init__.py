"""The interface of a judge, and the reward: 0.1 by a rule for a query that returned rows, 0.0–1.0 by a judge."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Protocol, runtime_checkable

from pydantic import Field

from sql_agent.schemas import Evidence, QueryCall, Question, Record, RewardParts, Usage


class JudgeCase(Record):
    """The input of a judge: the question with its reference, the agent's final answer, and its queries in order.

    `evidence_read` is the part of the question's evidence that the queries read (see database/provenance.py); None
    if unknown. `row_names` has a tuple for each item of the evidence, with all names of the item's row; () if they
    were not looked up.
    """

    question: Question
    answer: str
    calls: tuple[QueryCall, ...] = ()
    evidence_read: tuple[Evidence, ...] | None = None
    row_names: tuple[tuple[str, ...], ...] = ()


class Verdict(Record):
    """A judge's score of an answer, the criteria and the reason for the score, and the cost of grading.

    The score is 0.0–1.0, or negative in a task in which a wrong answer is worse than no answer. A criterion is 0.0–1.0,
    or negative if it only subtracts points, as safety does.
    """

    score: float = Field(ge=-1.0, le=1.0)
    criteria: dict[str, float] = Field(default_factory=dict)
    reason: str = ""
    usage: Usage = Usage()


@runtime_checkable
class Judge(Protocol):
    """Grades cases. A judge that wraps others, such as a panel, has the same interface."""

    @property
    def name(self) -> str:
        """The judge's name in records, metrics and messages."""

    @property
    def identity(self) -> str:
        """The kind and version of the judge, and the settings that decide a verdict, such as model and rubric.

        Raise the version when prompts or rules change. A judge with a new identity must be evaluated again.
        """

    async def grade(self, case: JudgeCase) -> Verdict:
        """Grade one case. Raises JudgeError if there is no score; the rollout is then dropped."""


@runtime_checkable
class GroupJudge(Judge, Protocol):
    """A judge that also compares all answers to one question. Its method `grade` scores a single answer."""

    async def rank(self, cases: Sequence[JudgeCase], own: Sequence[Verdict]) -> list[Verdict]:
        """Return a verdict for each of `cases`, in order; `own` has the verdicts of `grade` on these cases.

        Raises JudgeError if the cases cannot be compared.
        """


async def score(
    case: JudgeCase, judge: Judge, rule: Callable[[Sequence[QueryCall]], float]
) -> tuple[RewardParts, Usage]:
    """Return the reward of `case` by `rule` (0.0–0.1) and `judge` (0.0–1.0), and the judge's usage.

    Raises JudgeError if the judge gives no score. The caller must then drop the rollout, not score it 0.
    """
    verdict = await judge.grade(case)
    return reward_parts(rule(case.calls), verdict, judge.name), verdict.usage


def reward_parts(rule: float, verdict: Verdict, judge_name: str) -> RewardParts:
    """Combine the rule's reward (0.0–0.1) and the verdict of the judge `judge_name` into one reward."""
    return RewardParts(
        rule=rule, judge=verdict.score, judge_name=judge_name, criteria=verdict.criteria, reason=verdict.reason
    )
