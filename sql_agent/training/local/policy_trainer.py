"""Load, serve, update and save the policy of a local run, or serve one for asking only."""

from __future__ import annotations

import os
import socket
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

# libgomp reads this when torch loads it. Its threads wait for each other in a busy loop, by default for milliseconds.
# Where another process needs the core, a backward pass took up to five times as long because of that; on an idle
# machine the long wait gains nothing.
os.environ.setdefault("GOMP_SPINCOUNT", "10000")

from sql_agent.config.settings import Settings
from sql_agent.database import DatabasePool
from sql_agent.runs.console import Ui
from sql_agent.runs.run_log import RunLog
from sql_agent.schemas import Question
from sql_agent.tasks.task import Task, load_task
from sql_agent.training.local import checkpoint
from sql_agent.training.local.grpo_trainer import GrpoTrainer
from sql_agent.training.local.policy_service import PolicyService
from sql_agent.training.policy.forward import bf16_is_faster
from sql_agent.training.policy.model import Policy, load_policy, prepare_torch
from sql_agent.training.policy.sft import supervised_policy

if TYPE_CHECKING:
    from sql_agent.rollouts.rollouts import (
        FinishedRollout,  # agent-lightning takes seconds to import; asking needs none of it
    )


class PolicyTrainer:
    """Holds a local run's policy, its service and its optimizer: all parts that need torch.

    `step` is the number of finished updates, `saved` the step of the last checkpoint.
    """

    def __init__(
        self, settings: Settings, log: RunLog, policy: Policy, sock: socket.socket, api_key: str, *, bf16: bool
    ) -> None:
        self._settings = settings
        self._log = log
        self._policy = policy
        self.step = 0
        self.saved = 0
        self.trainer = GrpoTrainer(
            policy,
            settings.train,
            settings.local,
            bf16=bf16,
            temperature=settings.agent.temperature,
        )
        self._service = PolicyService(policy, settings.local, seed=settings.seed, bf16=bf16, sock=sock, api_key=api_key)

    @classmethod
    def open(
        cls,
        settings: Settings,
        log: RunLog,
        train: Sequence[Question],
        ui: Ui,
        *,
        sock: socket.socket,
        api_key: str,
        resume: bool,
        stopped: Callable[[], bool],
    ) -> PolicyTrainer:
        """Load the checkpoint to resume from, or fine-tune on `train`, and serve the policy on the bound `sock`.

        Its calls need `api_key`. `stopped` is called between two steps of the fine-tuning; when it returns true, that
        ends early. Raises ResumeError when there is no checkpoint, ModelError when the model cannot be loaded and
        DataError when no question has SQL to learn from.
        """
        bf16 = _prepare_torch(settings)
        if resume:
            folder = checkpoint.latest(log.folder)
            with ui.status(f"Loading {folder}"):
                trainer = cls(
                    settings,
                    log,
                    load_policy(str(folder / "model"), cache_dir=settings.local.cache_dir),
                    sock,
                    api_key,
                    bf16=bf16,
                )
                checkpoint.restore_optimizer(folder, trainer.trainer.optimizer)
            trainer.step = trainer.saved = checkpoint.step_of(folder)
            return trainer
        task = load_task(settings.task)
        with task.databases(settings) as databases:
            policy = _fine_tuned(settings, train, task, databases, ui, bf16=bf16, stopped=stopped)
        return cls(settings, log, policy, sock, api_key, bf16=bf16)

    def update(self, kept: Sequence[FinishedRollout], advantages: dict[str, float]) -> dict[str, float]:
        """Update the policy once by GRPO and return the metrics; raises TrainingError as `GrpoTrainer.update` does."""
        with self._service.weights_locked():
            metrics = self.trainer.update(kept, advantages, step=self.step + 1)
        self.step += 1
        return metrics

    def save(self) -> None:
        """Write a checkpoint of the last step, unless it has one or an error left the weights between two steps."""
        if self.step == self.saved or self.trainer.half_updated:
            return
        keep = self._settings.train.keep_checkpoints
        checkpoint.save(self._log.folder, self.step, self._policy, self.trainer.optimizer, keep=keep)
        self.saved = self.step

    def close(self) -> None:
        """Stop serving."""
        self._service.close()


def serve_for_questions(settings: Settings, databases: DatabasePool, ui: Ui) -> PolicyService:
    """Serve a policy for asking only: `settings.model` as it is, or the embedded model after `sft.steps` steps."""
    bf16 = _prepare_torch(settings)
    if settings.model or not settings.sft.steps:
        with ui.status(f"Loading {settings.model or 'the model'}"):
            policy = load_policy(settings.model, cache_dir=settings.local.cache_dir)
    else:
        task = load_task(settings.task)
        policy = _fine_tuned(settings, task.questions(settings, "train"), task, databases, ui, bf16=bf16)
    return PolicyService(policy, settings.local, seed=settings.seed, bf16=bf16)


def _fine_tuned(
    settings: Settings,
    questions: Sequence[Question],
    task: Task,
    databases: DatabasePool,
    ui: Ui,
    *,
    bf16: bool,
    stopped: Callable[[], bool] = lambda: False,
) -> Policy:
    """Return the policy after supervised fine-tuning, whose progress `ui` shows."""
    with ui.status("Loading the model"):
        return supervised_policy(
            settings,
            questions,
            task,
            databases,
            bf16=bf16,
            stopped=stopped,
            progress=ui.sft,
            max_context=settings.local.max_context,
            say=ui.say,
        )


def _prepare_torch(settings: Settings) -> bool:
    """Set the number of threads; returns whether to use bf16."""
    prepare_torch(settings.local.threads)
    return bf16_is_faster() if settings.local.bf16 is None else settings.local.bf16
