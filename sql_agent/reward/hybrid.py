"""Add up the reward of one rollout: rule plus judge."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from sql_agent.reward.judges.base import Judge, JudgeCase, Verdict
from sql_agent.schemas import QueryCall, RewardParts, Usage


async def score(
    case: JudgeCase, judge: Judge, rule: Callable[[Sequence[QueryCall]], float]
) -> tuple[RewardParts, Usage]:
    """Score `case` with `rule` (0.0–0.1) and `judge` (0.0–1.0); the second value is what the judge spent.

    Raises JudgeError when the judge could not give a score: the caller drops the rollout, and never scores it 0.
    """
    verdict = await judge.grade(case)
    return reward_parts(rule(case.calls), verdict, judge.name), verdict.usage


def reward_parts(rule: float, verdict: Verdict, judge_name: str) -> RewardParts:
    """Return the reward made of the rule's part and a verdict."""
    return RewardParts(
        rule=rule,
        judge=verdict.score,
        judge_name=judge_name,
        criteria=verdict.criteria,
        reason=verdict.reason,
    )
