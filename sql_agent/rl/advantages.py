"""Compute GRPO's advantages: how much better a rollout did than the others of its group."""

from __future__ import annotations

import statistics
from collections.abc import Iterable

from sql_agent.rl.metrics import rewards_by_group
from sql_agent.rl.rollouts import FinishedRollout

_EPSILON = 1e-6


def group_advantages(rollouts: Iterable[FinishedRollout]) -> dict[str, float]:
    """Return the advantage of each kept rollout, by its id.

    advantage = (reward - mean of its group) / (standard deviation of its group + 1e-6)

    This is the outcome advantage of Shao et al. 2024 (arXiv:2402.03300, 4.1.2) with the sample's deviation, as verl
    computes it. A rollout alone in its group gets 0, because there is nothing to compare it with; verl, where a group
    shrinks to one only when all retries of the others were lost, takes its reward.
    """
    result: dict[str, float] = {}
    for group in rewards_by_group(rollouts).values():
        mean = statistics.fmean(group.values())
        spread = statistics.stdev(group.values()) if len(group) > 1 else 0.0
        result |= {rollout_id: (reward - mean) / (spread + _EPSILON) for rollout_id, reward in group.items()}
    return result
