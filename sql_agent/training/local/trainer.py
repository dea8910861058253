"""The policy of a local run: load it, serve it, update it and save it; or serve one for questions only."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING

# libgomp reads this when torch loads it. Its threads wait for each other in a busy loop, by default for milliseconds.
# Where another process needs the core, a backward pass took up to five times as long because of that; on an idle
# machine the long wait gains nothing.
os.environ.setdefault("GOMP_SPINCOUNT", "10000")

import torch

from sql_agent.config.settings import Settings
from sql_agent.database import DatabasePool
from sql_agent.runs.checkpoints import local_checkpoints
from sql_agent.runs.console import Ui
from sql_agent.runs.run_log import RunLog
from sql_agent.schemas import Question
from sql_agent.tasks.task import load_task
from sql_agent.training.local import checkpoint
from sql_agent.training.local.grpo_update import GrpoUpdate
from sql_agent.training.local.policy_service import PolicyService
from sql_agent.training.policy.cpu import prepare_torch
from sql_agent.training.policy.model import Policy, load_policy
from sql_agent.training.policy.sft import Compute, Hooks, supervised_policy
from sql_agent.training.serving.server import ServerThread

if TYPE_CHECKING:  # because it imports agent-lightning, which takes seconds and is not needed to ask a model
    from sql_agent.rollouts.finished_rollout import FinishedRollout


class PolicyTrainer:
    """The policy of a local run with its service and its optimizer: all parts that need torch.

    `step` is the number of finished updates, `saved` the step of the last checkpoint, None before the first one.
    """

    def __init__(self, settings: Settings, log: RunLog, policy: Policy, server: ServerThread, *, bf16: bool) -> None:
        self._settings = settings
        self._log = log
        self._policy = policy
        self._update = GrpoUpdate(policy, settings, bf16=bf16)
        self._service = PolicyService(policy, settings, server, bf16=bf16)
        self.step = 0
        self.saved: int | None = None

    @classmethod
    def start(  # noqa: PLR0917  called in a thread
        cls,
        settings: Settings,
        log: RunLog,
        ui: Ui,
        server: ServerThread,
        train: Sequence[Question],
        stopped: Callable[[], bool],
    ) -> PolicyTrainer:
        """Fine-tune the model on `train`, and serve the policy.

        `stopped` is called between two steps of the fine-tuning, which ends when it returns true. Raises what
        `supervised_policy` raises.
        """
        bf16 = prepare_torch()
        with load_task(settings.task).databases(settings) as databases:
            policy = _fine_tuned(settings, train, databases, ui, bf16=bf16, stopped=stopped)
        return cls(settings, log, policy, server, bf16=bf16)

    @classmethod
    def resume(cls, settings: Settings, log: RunLog, ui: Ui, server: ServerThread) -> PolicyTrainer:
        """Load the newest checkpoint of the run, which must have one, and serve its policy."""
        bf16 = prepare_torch()
        step, folder = max(local_checkpoints(log.folder).items())
        with ui.status(f"Loading {folder}"):
            policy = load_policy(str(folder / "model"), cache_dir=settings.local.cache_dir)
            trainer = cls(settings, log, policy, server, bf16=bf16)
            trainer._update.optimizer.load_state_dict(torch.load(folder / "optimizer.pt", weights_only=True))
        trainer.step = trainer.saved = step
        return trainer

    def update(self, kept: Sequence[FinishedRollout], advantages: Mapping[str, float]) -> dict[str, float]:
        """Update the policy once and return the figures of the update; the arguments are those of `GrpoUpdate`."""
        with self._service.weights_locked():
            figures = self._update(kept, advantages, step=self.step + 1)
        self.step += 1
        return figures

    def save(self) -> None:
        """Write a checkpoint of the last step, unless it has one or an error left the weights between two steps."""
        if self.step == self.saved or self._update.half_updated:
            return
        keep = self._settings.train.keep_checkpoints
        checkpoint.save(self._log.folder, self.step, self._policy, self._update.optimizer, keep=keep)
        self.saved = self.step

    def close(self) -> None:
        """Stop serving."""
        self._service.close()


def serve_for_questions(settings: Settings, databases: DatabasePool, ui: Ui) -> PolicyService:
    """Serve a policy that is not trained: `settings.model` as it is, or the embedded model after `sft.steps` steps."""
    bf16 = prepare_torch()
    if settings.model or not settings.sft.steps:
        with ui.status(f"Loading {settings.model or 'the model'}"):
            policy = load_policy(settings.model, cache_dir=settings.local.cache_dir)
    else:
        questions = load_task(settings.task).questions(settings, "train")
        policy = _fine_tuned(settings, questions, databases, ui, bf16=bf16)
    return PolicyService(policy, settings, ServerThread.with_key(), bf16=bf16)


def _fine_tuned(
    settings: Settings,
    questions: Sequence[Question],
    databases: DatabasePool,
    ui: Ui,
    *,
    bf16: bool,
    stopped: Callable[[], bool] = lambda: False,
) -> Policy:
    """Return the policy after supervised fine-tuning, whose progress `ui` shows."""
    compute = Compute(bf16=bf16, max_context=settings.local.max_context)
    hooks = Hooks(progress=ui.sft, say=ui.say, stopped=stopped)
    with ui.status("Loading the model"):
        return supervised_policy(settings, questions, load_task(settings.task), databases, compute=compute, hooks=hooks)
