"""The rule's reward: 0.1 for a query that returned rows."""

from __future__ import annotations

from collections.abc import Sequence

from sql_agent.schemas import QueryCall

RULE_REWARD = 0.1
FULL_REWARD = RULE_REWARD + 1.0  # the reward of a right answer after a query that returned rows


def returned_rows(call: QueryCall) -> bool:
    """Return whether `call` succeeded and returned at least one row of a table of the schema."""
    return call.answer.status == "ok" and call.answer.count > 0 and call.answer.from_tables


def rule_reward(calls: Sequence[QueryCall]) -> float:
    """Return `RULE_REWARD` if at least one of `calls` returned rows of the database, else 0.0.

    `SELECT 1` returns a row, but a row of no table, and earns 0.0.
    """
    return RULE_REWARD if any(returned_rows(call) for call in calls) else 0.0
