"""Run verl's trainers so that they update only on rollouts that have an advantage."""

from __future__ import annotations

from omegaconf import DictConfig
from verl.trainer.main_ppo import TaskRunnerV1
from verl.trainer.ppo.v1.trainer_base import TRAINER_REGISTRY

from sql_agent.training.verl.informative import UpdatesWhereRewardsDiffer


class TaskRunner:
    """Trains, as an actor of Ray, as verl's own task runner does, with trainers that leave out what has no gradient."""

    def run(self, config: DictConfig) -> None:
        """Train until the last step of `config`."""
        for mode, trainer in list(TRAINER_REGISTRY.items()):
            TRAINER_REGISTRY[mode] = type(trainer.__name__, (UpdatesWhereRewardsDiffer, trainer), {})
        TaskRunnerV1.__ray_metadata__.modified_class().run(config)
