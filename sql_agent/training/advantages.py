"""Compute GRPO's advantages: how much better a rollout did than the others of its group."""

from __future__ import annotations

import statistics
from collections.abc import Iterable

from sql_agent.reward import FULL_REWARD
from sql_agent.rollouts.finished_rollout import FinishedRollout
from sql_agent.rollouts.metrics import rewards_by_group

_EPSILON = 1e-6


def group_advantages(rollouts: Iterable[FinishedRollout]) -> dict[str, float]:
    """Return the advantage of each kept rollout, by its id.

    advantage = (reward - mean of its group) / (standard deviation of its group + 1e-6)

    This is the outcome advantage of Shao et al. 2024 (arXiv:2402.03300, 4.1.2) with the sample's deviation, as verl
    computes it. A rollout alone in its group gets 0, because there is no rollout to compare it with; verl takes the
    reward instead, but a group shrinks to one rollout only when all retries of the others were lost.
    """
    result: dict[str, float] = {}
    for group in rewards_by_group(rollouts).values():
        mean = statistics.fmean(group.values())
        spread = statistics.stdev(group.values()) if len(group) > 1 else 0.0
        result |= {rollout_id: (reward - mean) / (spread + _EPSILON) for rollout_id, reward in group.items()}
    return result


def extreme_advantages(rollouts: Iterable[FinishedRollout], count: int) -> dict[str, float]:
    """Return the advantage of each kept rollout, by its id, when at most `count` rollouts of each group are trained.

    advantage = (reward - mean of the trained rollouts) / FULL_REWARD; 0 for the others

    FULL_REWARD is the largest difference of two rewards. Few rollouts are trained, because on a CPU an update costs
    more than sampling: those with the highest and the lowest rewards of the group, in equal numbers, because their
    variance is the largest (Xu et al. 2025, arXiv:2504.13818). There is no division by the standard deviation (Liu et
    al. 2025, arXiv:2503.20783): with two rollouts, the 0.1 for a successful query would count as the whole reward.
    """
    result: dict[str, float] = {}
    for group in rewards_by_group(rollouts).values():
        ordered = sorted(group, key=group.__getitem__)
        trained = ordered if len(ordered) <= count else ordered[: count // 2] + ordered[count // 2 - count :]
        mean = statistics.fmean(group[rollout_id] for rollout_id in trained)
        result |= dict.fromkeys(group, 0.0)
        result |= {rollout_id: (group[rollout_id] - mean) / FULL_REWARD for rollout_id in trained}
    return result
