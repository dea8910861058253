"""Load, serve, update and save the policy of a local run."""

from __future__ import annotations

import copy
import json
import os
import shutil
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

# libgomp, which torch loads, reads this variable. By default its threads wait for each other in a busy loop for
# milliseconds. A backward pass then took up to five times as long when other processes needed the cores, and was no
# faster on an idle machine.
os.environ.setdefault("GOMP_SPINCOUNT", "10000")

import torch
from safetensors import SafetensorError

from sql_agent.config.settings import Settings
from sql_agent.database import DatabasePool
from sql_agent.errors import TrainingError
from sql_agent.rollouts.trajectory import FinishedRollout
from sql_agent.runs.checkpoints import ADAPTERS, digests, initial_weights, local_checkpoint, local_checkpoints
from sql_agent.runs.console import Ui
from sql_agent.runs.resume import how_to_go_on
from sql_agent.runs.run_folder import SFT
from sql_agent.runs.run_log import RunLog
from sql_agent.schemas import Question
from sql_agent.system.files import sync, sync_tree
from sql_agent.system.resources import free_shown
from sql_agent.tasks.task import load_task
from sql_agent.training.local.grpo_update import GrpoUpdate
from sql_agent.training.local.policy_service import PolicyService, prepare_torch, release_freed_memory
from sql_agent.training.policy.model import Policy, add_adapters, load_adapters, load_policy
from sql_agent.training.policy.sft import Compute, copy_losses, fine_tuned_model
from sql_agent.training.serving.server import ServerThread


class FineTuningStopped(Exception):  # noqa: N818  not an error
    """Supervised fine-tuning was stopped before its last step, so there is no fine-tuned model."""


class PolicyTrainer:
    """The policy of a local run, with its server and its optimizer.

    `step` is the number of finished updates. `saved` is the step of the last checkpoint, or None without a checkpoint.
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
        """Fine-tune the model on the questions `train`, and serve it. Raises the errors of `fine_tuned_model`."""
        bf16 = prepare_torch()
        with load_task(settings.task).databases(settings) as databases:
            policy = fine_tuned_policy(settings, train, databases, ui, bf16=bf16, stopped=stopped, log=log)
        trainer = cls(settings, log, policy, server, bf16=bf16)
        if policy.adapters is not None:
            trained, total = policy.adapters.get_nb_trainable_parameters()
            ui.say(f"GRPO trains LoRA adapters: {trained:,} of {total:,} parameters")
        if settings.model:
            ui.say(f"Tool-call format: {trainer._service.tool_format}")
        return trainer

    @classmethod
    def resume(cls, settings: Settings, log: RunLog, ui: Ui, server: ServerThread) -> PolicyTrainer:
        """Load the newest checkpoint of the run, and serve its policy. Raises ValueError without a checkpoint."""
        bf16 = prepare_torch()
        step, folder = max(local_checkpoints(log.folder).items())
        with ui.status(f"Loading {folder}"):
            initial = initial_weights(log.folder)
            policy = load(str(initial if initial.exists() else folder / "model"), settings)
            trainer = cls(settings, log, policy, server, bf16=bf16)  # copies the initial weights for the KL penalty
            with trainer._service.weights_locked():
                if policy.adapters is not None:
                    load_adapters(policy.adapters, folder / ADAPTERS)
                elif initial.exists():
                    policy.model.load_state_dict(load(str(folder / "model"), settings).model.state_dict())
            trainer._update.optimizer.load_state_dict(torch.load(folder / "optimizer.pt", weights_only=True))
        trainer.step = trainer.saved = step
        return trainer

    @contextmanager
    def untrained(self) -> Iterator[None]:
        """Inside the context, serve the model as it was before supervised fine-tuning."""
        with self._service.serving(load(self._settings.model, self._settings)):
            yield

    def update(self, kept: Sequence[FinishedRollout], advantages: Mapping[str, float]) -> dict[str, float]:
        """Do the policy update of the next training step, and return its metrics, see `GrpoUpdate`."""
        with self._service.weights_locked():
            figures = self._update(kept, advantages, step=self.step + 1)
        self.step += 1
        return figures

    def save(self) -> None:
        """Write a checkpoint of the last step, unless one exists or an error interrupted the last update."""
        if self.step == self.saved or self._update.half_updated:
            return
        keep = self._settings.train.keep_checkpoints
        save_checkpoint(
            self._log.folder, self.step, self._policy, self._update.optimizer, keep=keep, initial=self._initial_model
        )
        self.saved = self.step

    def _initial_model(self) -> Any | None:
        """Return the model before GRPO, if a resumed run needs it for the KL penalty or the adapters, else None."""
        adapters = self._policy.adapters
        return self._update.reference if adapters is None else copy.deepcopy(adapters).unload()

    def close(self) -> None:
        self._service.close()


def fine_tuned_policy(
    settings: Settings,
    questions: Sequence[Question],
    databases: DatabasePool,
    ui: Ui,
    *,
    bf16: bool,
    stopped: Callable[[], bool] = lambda: False,
    log: RunLog | None = None,
) -> Policy:
    """Fine-tune the model unless the result is cached, and load the result.

    Progress is shown on `ui`, and the losses are written to `log`. Raises FineTuningStopped when `stopped` returns
    true, and the errors of `fine_tuned_model`.
    """

    def progress(step: int, steps: int, loss: float) -> None:
        ui.sft(step, steps, loss)
        if log is not None:
            log.sft(step, steps, loss)
        release_freed_memory()
        if step < steps and stopped():
            raise FineTuningStopped

    def say(line: str) -> None:
        ui.say(line)
        if stopped():
            raise FineTuningStopped

    compute = Compute(bf16=bf16, lora_rank=settings.verl.lora_rank, max_context=settings.local.max_context)
    task = load_task(settings.task)
    with ui.status("Supervised fine-tuning"):
        model = fine_tuned_model(settings, questions, task, databases, compute=compute, progress=progress, say=say)
    if log is not None:
        copy_losses(model, log.folder / SFT)
        log.track_sft()
    release_freed_memory()
    with ui.status("Loading the model"):
        return load(model, settings)


def load(source: str, settings: Settings) -> Policy:
    return load_policy(source, cache_dir=settings.local.cache_dir, agent=settings.agent)


def save_checkpoint(
    run_folder: Path,
    step: int,
    policy: Policy,
    optimizer: Any,
    *,
    keep: int,
    initial: Callable[[], Any | None] = lambda: None,
) -> Path:
    """Write the checkpoint folder `checkpoints/step-N`, return its path, and delete all but the newest `keep` folders.

    `model/` is a Hugging Face folder, and `state.json` has the step and the SHA-256 of each file. With LoRA, `adapter/`
    has the adapters, which are also merged into `model/`. The model that `initial` returns, if any, is written to
    `checkpoints/base`, once for all checkpoints.

    The folder is synced to the disk under another name and then renamed, so that a power cut leaves no incomplete
    checkpoint. Raises TrainingError, and keeps all earlier checkpoints, when the folder cannot be written.
    """
    target = local_checkpoint(run_folder, step)
    partial = target.with_name(target.name + ".partial")
    shutil.rmtree(partial, ignore_errors=True)
    try:
        partial.mkdir(parents=True)
        policy.save(partial / "model")
        if policy.adapters is not None:
            # With embedding layers, peft would ask the hub about the base model.
            policy.adapters.save_pretrained(partial / ADAPTERS, save_embedding_layers=False)
        base = initial_weights(run_folder)
        if not base.exists() and (model := initial()) is not None:
            replace(policy, model=model, adapters=None).save(base)
            sync_tree(base)
        torch.save(optimizer.state_dict(), partial / "optimizer.pt")
        sha256 = digests(partial) | {f"../{base.name}/{name}": digest for name, digest in digests(base).items()}
        state = json.dumps({"step": step, "sha256": sha256}, indent=2)
        (partial / "state.json").write_text(state + "\n", "utf-8")
        sync_tree(partial)
    except (OSError, RuntimeError, SafetensorError) as error:  # torch raises RuntimeError
        shutil.rmtree(partial, ignore_errors=True)
        raise TrainingError(
            f"could not save the checkpoint of step {step} to {target}, where {free_shown(run_folder)}: "
            f"{str(error).splitlines()[0]}",
            hint=f"free space on that disk, then {how_to_go_on(run_folder)}",
        ) from error
    shutil.rmtree(target, ignore_errors=True)
    partial.replace(target)
    sync(target.parent)
    for old in list(local_checkpoints(run_folder).values())[:-keep]:
        shutil.rmtree(old)
    return target
