"""Compute the reward of a rollout: a rule rewards a query that returned rows, a judge grades the answer."""

from sql_agent.reward.judges.base import (
    FULL_REWARD,
    RULE_REWARD,
    GroupJudge,
    Judge,
    JudgeCase,
    Verdict,
    returned_rows,
    reward_parts,
    rule_reward,
    score,
)

__all__ = [
    "FULL_REWARD",
    "RULE_REWARD",
    "GroupJudge",
    "Judge",
    "JudgeCase",
    "Verdict",
    "returned_rows",
    "reward_parts",
    "rule_reward",
    "score",
]
