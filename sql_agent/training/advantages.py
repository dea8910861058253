"""Compute GRPO's advantages: how far each rollout's reward is above or below the mean reward of its group."""

from __future__ import annotations

import statistics
from collections.abc import Iterable

from sql_agent.reward.rule_reward import FULL_REWARD
from sql_agent.rollouts.metrics import rewards_by_group
from sql_agent.rollouts.trajectory import FinishedRollout

_EPSILON = 1e-6


def group_advantages(rollouts: Iterable[FinishedRollout]) -> dict[str, float]:
    """Return the advantage of each kept rollout, by rollout id.

    advantage = (reward - mean reward of the group) / (standard deviation of the group's rewards + 1e-6)

    This is the outcome advantage of Shao et al. 2024 (arXiv:2402.03300, 4.1.2) with the sample standard deviation, as
    in verl. If all retries of a group's other rollouts were lost, the only kept rollout gets 0, because there is no
    reward to compare with; verl would use the reward itself as the advantage.
    """
    result: dict[str, float] = {}
    for group in rewards_by_group(rollouts).values():
        mean = statistics.fmean(group.values())
        spread = statistics.stdev(group.values()) if len(group) > 1 else 0.0
        result |= {rollout_id: (reward - mean) / (spread + _EPSILON) for rollout_id, reward in group.items()}
    return result


def extreme_advantages(rollouts: Iterable[FinishedRollout], count: int) -> dict[str, float]:
    """Return the advantage of each kept rollout, by rollout id, with at most `count` nonzero advantages in a group.

    advantage = (reward - mean reward of the group's trained rollouts) / FULL_REWARD, or 0 for an untrained rollout

    FULL_REWARD is the largest possible difference between two rewards. An update takes long on a CPU, so only the
    rollouts with the highest and the lowest rewards of a group are trained, in equal numbers; their rewards have the
    largest variance (Xu et al. 2025, arXiv:2504.13818). The advantage is not divided by the standard deviation (Liu et
    al. 2025, arXiv:2503.20783). With two rollouts, such a division would make the advantage of a successful query,
    whose reward is 0.1, as large as that of a right answer.
    """
    result: dict[str, float] = {}
    for group in rewards_by_group(rollouts).values():
        ordered = sorted(group, key=group.__getitem__)
        trained = ordered if len(ordered) <= count else ordered[: count // 2] + ordered[count // 2 - count :]
        mean = statistics.fmean(group[rollout_id] for rollout_id in trained)
        result |= dict.fromkeys(group, 0.0)
        result |= {rollout_id: (group[rollout_id] - mean) / FULL_REWARD for rollout_id in trained}
    return result
