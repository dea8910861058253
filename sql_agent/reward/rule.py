"""The rule part of the reward: did the agent get rows out of the medical tables at all?"""

from __future__ import annotations

from collections.abc import Sequence

from sql_agent.schemas import QueryCall

RULE_REWARD = 0.1


def returned_medical_rows(call: QueryCall) -> bool:
    """Whether `call` succeeded and brought back at least one row of a medical table."""
    return call.answer.status == "ok" and call.answer.count > 0 and call.answer.medical


def rule_reward(calls: Sequence[QueryCall]) -> float:
    """Return `RULE_REWARD` when at least one of `calls` returned medical rows, else 0.0.

    `SELECT 1` succeeds and returns a row, but of no medical table: it earns nothing.
    """
    return RULE_REWARD if any(returned_medical_rows(call) for call in calls) else 0.0
