"""Reward queries by a rule: did the agent get rows out of the database at all?"""

from __future__ import annotations

from collections.abc import Sequence

from sql_agent.schemas import QueryCall

RULE_REWARD = 0.1
FULL_REWARD = RULE_REWARD + 1.0  # of a right answer after a query that returned rows


def returned_rows(call: QueryCall) -> bool:
    """Return whether `call` succeeded and brought back at least one row of a table of the schema."""
    return call.answer.status == "ok" and call.answer.count > 0 and call.answer.from_tables


def rule_reward(calls: Sequence[QueryCall]) -> float:
    """Return `RULE_REWARD` when at least one of `calls` returned rows of the database, else 0.0.

    `SELECT 1` succeeds and returns a row, but of no table: it earns nothing.
    """
    return RULE_REWARD if any(returned_rows(call) for call in calls) else 0.0
