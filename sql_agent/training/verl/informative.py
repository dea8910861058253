"""Leave out of an update what GRPO cannot learn from: the rollouts of groups whose rewards are all equal.

Their advantage is 0, so they cost a forward and a backward pass and have no gradient. Of a policy that is mostly right
they are more than half of a step. The local backend leaves them out, too.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Callable, Sequence
from typing import Any

from sql_agent.rollouts.metrics import differ


class UpdatesWhereRewardsDiffer:
    """Changes a trainer of verl, as a base class before it, to update only on groups whose rewards differ."""

    config: Any
    actor_rollout_wg: Any
    _balance_batch: Callable[[Any, dict[str, Any]], Any]

    def _update_actor(self, batch: Any, metrics: dict[str, Any]) -> Any:
        """Update the policy on the part of `batch` that has a gradient, add to `metrics`, and return `batch`."""
        if not _needs_different_rewards(self.config):
            return super()._update_actor(batch, metrics)  # type: ignore[misc]
        actor, group_size = self.config.actor_rollout_ref.actor, self.config.actor_rollout_ref.rollout.n
        questions = actor.ppo_mini_batch_size
        minibatches = len(batch) // (questions * group_size)
        multiple = minibatches * math.lcm(group_size, self.actor_rollout_wg.world_size)
        places = places_to_train(*_groups_and_rewards(batch), multiple)
        if len(places) == len(batch):
            return super()._update_actor(batch, metrics)  # type: ignore[misc]
        if not places:
            metrics["actor/grad_norm"] = 0.0
            return batch
        part = batch.select_keys([batch.keys[place] for place in places])
        actor.ppo_mini_batch_size = len(places) // (minibatches * group_size)
        try:
            super()._update_actor(self._balance_batch(part, {}), metrics)  # type: ignore[misc]
        finally:
            actor.ppo_mini_batch_size = questions
        return batch


def _needs_different_rewards(config: Any) -> bool:
    """Return whether equal rewards are advantages of 0, and nothing else than the advantage says what to learn.

    The entropy bonus does not count: it keeps those answers open that are compared, and the others need no update.
    """
    algorithm = config.algorithm
    return (
        algorithm.adv_estimator == "grpo"
        and not algorithm.use_kl_in_reward
        and not config.actor_rollout_ref.actor.use_kl_loss
        and not config.get("distillation", {}).get("enabled", False)
    )


def places_to_train(groups: Sequence[str], rewards: Sequence[float], multiple: int) -> list[int]:
    """Return the places of the sequences whose group has different rewards, in order.

    `groups` and `rewards` have an element for each sequence. Since the update takes a `multiple` of sequences, others
    are added up to one; where there are too few of them, all places are returned. Empty when no group's rewards differ.
    """
    rewards_of: defaultdict[str, list[float]] = defaultdict(list)
    for group, reward in zip(groups, rewards, strict=True):
        rewards_of[group].append(reward)
    chosen = [place for place, group in enumerate(groups) if differ(rewards_of[group])]
    others = [place for place, group in enumerate(groups) if not differ(rewards_of[group])]
    missing = -len(chosen) % multiple
    return sorted(chosen + others[:missing]) if missing <= len(others) else list(range(len(groups)))


def _groups_and_rewards(batch: Any) -> tuple[list[str], list[float]]:
    """Return the group and the reward of each sequence of `batch`."""
    import transfer_queue  # noqa: PLC0415  only where verl is installed

    fields = transfer_queue.kv_batch_get(
        keys=batch.keys, partition_id=batch.partition_id, select_fields=["uid", "rm_scores"]
    )
    return fields.get("uid").tolist(), [float(scores.sum()) for scores in fields["rm_scores"].unbind()]
