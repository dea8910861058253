"""Compute the reward of a rollout: 0.1 by a rule for a query that returned rows, 0.0–1.0 by a judge for the answer."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from sql_agent.reward.judges.base import Judge, JudgeCase, Verdict
from sql_agent.schemas import QueryCall, RewardParts, Usage

RULE_REWARD = 0.1
FULL_REWARD = RULE_REWARD + 1.0  # of a right answer after a query that returned rows


def returned_rows(call: QueryCall) -> bool:
    """Return whether `call` succeeded and returned at least one row of a table of the schema."""
    return call.answer.status == "ok" and call.answer.count > 0 and call.answer.from_tables


def rule_reward(calls: Sequence[QueryCall]) -> float:
    """Return `RULE_REWARD` if at least one of `calls` returned rows of the database, else 0.0.

    `SELECT 1` returns a row, but a row of no table, and earns 0.0.
    """
    return RULE_REWARD if any(returned_rows(call) for call in calls) else 0.0


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
