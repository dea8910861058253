"""The whole reward of one rollout: rule plus judge."""

from __future__ import annotations

from sql_agent.records import RewardParts
from sql_agent.reward.judge import Judge, JudgeCase
from sql_agent.reward.rule import rule_reward


async def score(case: JudgeCase, judge: Judge) -> RewardParts:
    """Score `case` with the rule (0.0 or 0.1) and `judge` (0.0–1.0).

    Raises JudgeError when the judge could not give a score: the caller drops the rollout, and never scores it 0.
    """
    verdict = await judge.grade(case)
    return RewardParts(
        rule=rule_reward(case.calls),
        judge=verdict.score,
        judge_name=judge.name,
        criteria=verdict.criteria,
        reason=verdict.reason,
    )
