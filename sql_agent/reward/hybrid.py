"""The whole reward of one rollout: rule plus judge."""

from __future__ import annotations

from sql_agent.reward.judges.base import Judge, JudgeCase, Verdict
from sql_agent.reward.rule import rule_reward
from sql_agent.schemas import RewardParts, Usage


async def score(case: JudgeCase, judge: Judge) -> tuple[RewardParts, Usage]:
    """Score `case` with the rule (0.0 or 0.1) and `judge` (0.0–1.0); the second value is what the judge spent.

    Raises JudgeError when the judge could not give a score: the caller drops the rollout, and never scores it 0.
    """
    verdict = await judge.grade(case)
    return reward_parts(case, verdict, judge.name), verdict.usage


def reward_parts(case: JudgeCase, verdict: Verdict, judge_name: str) -> RewardParts:
    """The reward of `case` given its verdict."""
    return RewardParts(
        rule=rule_reward(case.calls),
        judge=verdict.score,
        judge_name=judge_name,
        criteria=verdict.criteria,
        reason=verdict.reason,
    )
