"""Load, serve, update and save the policy of a local run; serve a policy without training."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

# libgomp, which torch loads, reads this variable. By default the threads of libgomp wait for each other in a busy loop
# for milliseconds. A backward pass then took up to five times as long when other processes needed the cores, and was no
# faster on an idle machine.
os.environ.setdefault("GOMP_SPINCOUNT", "10000")

import torch

from sql_agent.config.settings import Settings
from sql_agent.database import DatabasePool
from sql_agent.runs.checkpoints import ADAPTERS, initial_weights, local_checkpoints
from sql_agent.runs.console import Ui
from sql_agent.runs.run_folder import SFT
from sql_agent.runs.run_log import RunLog
from sql_agent.schemas import Question
from sql_agent.tasks.task import load_task
from sql_agent.training.local.checkpoint import save_checkpoint
from sql_agent.training.local.grpo_update import GrpoUpdate
from sql_agent.training.local.policy_service import PolicyService
from sql_agent.training.policy.cpu import prepare_torch
from sql_agent.training.policy.lora import add_adapters, base_copy, load_adapters
from sql_agent.training.policy.model import Policy, load_policy
from sql_agent.training.policy.sft import Compute, Hooks, copy_losses, fine_tuned_model
from sql_agent.training.serving.server import ServerThread

if TYPE_CHECKING:  # FinishedRollout imports agent-lightning, which takes seconds and is not needed to serve a model
    from sql_agent.rollouts.finished_rollout import FinishedRollout


class PolicyTrainer:
    """The policy of a local run, with its server and its optimizer.

    With `verl.lora_rank` above 0, LoRA adapters are trained in place of the weights. `step` is the number of finished
    updates. `saved` is the step of the last checkpoint, or None without a checkpoint.
    """

    def __init__(self, settings: Settings, log: RunLog, policy: Policy, server: ServerThread, *, bf16: bool) -> None:
        self._settings = settings
        self._log = log
        self._policy = policy
        if rank := settings.verl.lora_rank:
            torch.manual_seed(settings.seed)
            policy.adapters = add_adapters(policy.model, rank)
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
        """Fine-tune the model on the questions `train`, and serve it. Raises the errors of `fine_tuned_model`.

        `stopped` is called between two steps of the fine-tuning, and ends the fine-tuning when it returns true.
        """
        bf16 = prepare_torch()
        with load_task(settings.task).databases(settings) as databases:
            policy = _fine_tuned(settings, train, databases, ui, bf16=bf16, stopped=stopped, log=log)
        trainer = cls(settings, log, policy, server, bf16=bf16)
        if policy.adapters is not None:
            trained, total = policy.adapters.get_nb_trainable_parameters()
            ui.say(f"GRPO trains LoRA adapters: {trained:,} of {total:,} parameters")
        if settings.model:
            ui.say(f"Tool calls in the form {trainer._service.tool_format}")
        return trainer

    @classmethod
    def resume(cls, settings: Settings, log: RunLog, ui: Ui, server: ServerThread) -> PolicyTrainer:
        """Load the newest checkpoint of the run, and serve its policy. Raises ValueError without a checkpoint."""
        bf16 = prepare_torch()
        step, folder = max(local_checkpoints(log.folder).items())
        with ui.status(f"Loading {folder}"):
            initial = initial_weights(log.folder)
            policy = _load(str(initial if initial.exists() else folder / "model"), settings)
            trainer = cls(settings, log, policy, server, bf16=bf16)  # copies the initial weights for the KL penalty
            with trainer._service.weights_locked():
                if policy.adapters is not None:
                    load_adapters(policy.adapters, folder / ADAPTERS)
                elif initial.exists():
                    policy.model.load_state_dict(_load(str(folder / "model"), settings).model.state_dict())
            trainer._update.optimizer.load_state_dict(torch.load(folder / "optimizer.pt", weights_only=True))
        trainer.step = trainer.saved = step
        return trainer

    @contextmanager
    def untrained(self) -> Iterator[None]:
        """Inside the context, serve the model as it was before supervised fine-tuning."""
        with self._service.serving(_load(self._settings.model, self._settings)):
            yield

    def update(self, kept: Sequence[FinishedRollout], advantages: Mapping[str, float]) -> dict[str, float]:
        """Do the next training step's update on the `kept` rollouts, and return its metrics, see `GrpoUpdate`."""
        with self._service.weights_locked():
            figures = self._update(kept, advantages, step=self.step + 1)
        self.step += 1
        return figures

    def save(self) -> None:
        """Write a checkpoint of the last step, unless it exists already or an error interrupted the last update."""
        if self.step == self.saved or self._update.half_updated:
            return
        keep = self._settings.train.keep_checkpoints
        save_checkpoint(
            self._log.folder, self.step, self._policy, self._update.optimizer, keep=keep, initial=self._initial_model
        )
        self.saved = self.step

    def _initial_model(self) -> Any | None:
        """Return the model before GRPO if a resumed run needs it, else None."""
        adapters = self._policy.adapters
        return self._update.reference if adapters is None else base_copy(adapters)

    def close(self) -> None:
        """Stop serving."""
        self._service.close()


def serve_for_questions(settings: Settings, databases: DatabasePool, ui: Ui) -> PolicyService:
    """Serve `settings.model` as it is, or the embedded model after `sft.steps` steps of fine-tuning."""
    bf16 = prepare_torch()
    if settings.model or not settings.sft.steps:
        with ui.status(f"Loading {settings.model or 'the model'}"):
            policy = _load(settings.model, settings)
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
    log: RunLog | None = None,
) -> Policy:
    """Fine-tune the model, or find the cached result, and load it; show progress on `ui` and write losses to `log`."""

    def progress(step: int, steps: int, loss: float) -> None:
        ui.sft(step, steps, loss)
        if log is not None:
            log.sft(step, steps, loss)

    compute = Compute(bf16=bf16, lora_rank=settings.verl.lora_rank, max_context=settings.local.max_context)
    hooks = Hooks(progress=progress, say=ui.say, stopped=stopped)
    task = load_task(settings.task)
    with ui.status("Supervised fine-tuning"):
        model = fine_tuned_model(settings, questions, task, databases, compute=compute, hooks=hooks)
    if log is not None:
        copy_losses(model, log.folder / SFT)
        log.track_sft()
    with ui.status("Loading the model"):
        return _load(model, settings)


def _load(source: str, settings: Settings) -> Policy:
    return load_policy(source, cache_dir=settings.local.cache_dir, agent=settings.agent)
