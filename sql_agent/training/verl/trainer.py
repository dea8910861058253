"""Run verl's trainers, and leave groups whose rewards are all equal out of the update.

The rollouts of such a group have the advantage 0, so their forward and backward passes give no gradient. If most
answers of the policy are right, such rollouts are more than half of a step. The backend `local` leaves them out too.
"""

from __future__ import annotations

import importlib
import math
from collections import defaultdict
from collections.abc import Callable, Sequence
from typing import Any

from sql_agent.rollouts.metrics import differ
from sql_agent.training.verl.interprocess import end_of_start_part

# The attributes that verl's trainer sets when a part of its start has ended.
_ENDS = {"resource_pool_manager": "verl's queue, data", "reward_loop_manager": "actor", "llm_server_manager": "vLLM"}


class SkipsZeroAdvantage:
    """Mixin for verl's trainers that updates the policy only on groups whose rewards differ."""

    config: Any
    actor_rollout_wg: Any
    _balance_batch: Callable[[Any, dict[str, Any]], Any]

    def __setattr__(self, name: str, value: Any) -> None:
        super().__setattr__(name, value)
        if name in _ENDS:
            end_of_start_part(_ENDS[name])

    def _update_actor(self, batch: Any, metrics: dict[str, Any]) -> Any:
        """Update the policy on the sequences of `batch` from `places_to_train`, and return the complete `batch`."""
        if not _only_the_advantage_trains(self.config):
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


class TaskRunner:
    """A Ray actor that trains like verl's own task runner, with `SkipsZeroAdvantage` in every trainer.

    The actor starts before its configuration is complete, so that its imports run during supervised fine-tuning.
    """

    def __init__(self) -> None:
        for module in ("verl.trainer.main_ppo", "verl.trainer.ppo.v1"):
            importlib.import_module(module)

    def run(self, config: Any) -> None:
        """Train with verl's configuration `config` (OmegaConf) until the last step."""
        from verl.trainer.main_ppo import TaskRunnerV1  # noqa: PLC0415  slow; installed with verl only
        from verl.trainer.ppo.v1 import trainer_base  # noqa: PLC0415

        end_of_start_part("imports of verl's trainer")
        # verl has no option for another trainer class, so each class in its registry is replaced.
        for mode, trainer in list(trainer_base.TRAINER_REGISTRY.items()):
            trainer_base.TRAINER_REGISTRY[mode] = type(trainer.__name__, (SkipsZeroAdvantage, trainer), {})
        # verl balances the numbers of a tensor, which for 512 rollouts takes 0.36 s; with a list it takes 0.02 s.
        balanced = trainer_base.get_seqlen_balanced_partitions
        trainer_base.get_seqlen_balanced_partitions = lambda loads, **more: balanced(loads.tolist(), **more)
        # TaskRunnerV1 is a Ray actor class; the class that it wraps runs in this actor.
        TaskRunnerV1.__ray_metadata__.modified_class().run(config)


def places_to_train(groups: Sequence[str], rewards: Sequence[float], multiple: int) -> list[int]:
    """Return the indices of the sequences to train, in ascending order: those in groups whose rewards differ.

    `groups` and `rewards` have one element for each sequence. The number of sequences must be divisible by `multiple`,
    so sequences of groups with equal rewards are added. If these are too few, all indices are returned.
    """
    rewards_of: defaultdict[str, list[float]] = defaultdict(list)
    for group, reward in zip(groups, rewards, strict=True):
        rewards_of[group].append(reward)
    chosen = [place for place, group in enumerate(groups) if differ(rewards_of[group])]
    others = [place for place, group in enumerate(groups) if not differ(rewards_of[group])]
    missing = -len(chosen) % multiple
    return sorted(chosen + others[:missing]) if missing <= len(others) else list(range(len(groups)))


def _only_the_advantage_trains(config: Any) -> bool:
    """Return whether equal rewards in a group give no gradient: with GRPO's advantages, and no KL or distillation.

    An entropy term in the loss is ignored, because only groups whose rewards differ need diverse answers.
    """
    algorithm = config.algorithm
    return (
        algorithm.adv_estimator == "grpo"
        and not algorithm.use_kl_in_reward
        and not config.actor_rollout_ref.actor.use_kl_loss
        and not config.get("distillation", {}).get("enabled", False)
    )


def _groups_and_rewards(batch: Any) -> tuple[list[str], list[float]]:
    import transfer_queue  # noqa: PLC0415  installed with verl only

    fields = transfer_queue.kv_batch_get(
        keys=batch.keys, partition_id=batch.partition_id, select_fields=["uid", "rm_scores"]
    )
    return fields.get("uid").tolist(), [float(scores.sum()) for scores in fields["rm_scores"].unbind()]
