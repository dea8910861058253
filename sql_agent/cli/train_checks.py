"""Check, before training, that this host meets the requirements and that no setting contradicts another."""

from __future__ import annotations

import importlib.util
import math

from sql_agent.cli.model_choice import check_model_folder, count_parameters
from sql_agent.config.settings import Settings
from sql_agent.errors import ConfigError, TrainingError
from sql_agent.rollouts.preflight import check_opentelemetry
from sql_agent.runs.trackers import check_trackers
from sql_agent.system.files import check_writable
from sql_agent.system.resources import available_memory, free_disk, gpu_names, raise_open_files, shown_size
from sql_agent.system.servers import bind
from sql_agent.training.policy.model_config import context_of
from sql_agent.training.verl import config as verl_config
from sql_agent.training.verl.memory import plan_memory, refuse

_SAVED_BYTES = 12  # per parameter in a checkpoint: the weight and AdamW's two moments, all fp32
_TRAINED_BYTES = 18  # per parameter in memory: the above, the gradient, and a bf16 copy for sampling
_WEIGHT_BYTES = 4  # per parameter, fp32
_LORA_TRAINED_BYTES = 10  # per parameter: the fp32 weight, a bf16 copy for sampling, an fp32 copy while it is saved
_FILES_PER_ROLLOUT = 4  # connections to the proxy, the store, the judge, and one to spare
_FILES = 256  # open files of a process without rollouts


def check_settings(settings: Settings) -> None:
    """Raise a SqlAgentError unless a run with `settings` can start on this host."""
    _check_host(settings)
    check_opentelemetry()
    check_trackers(settings)
    train = settings.train
    if train.minibatches > train.questions_per_step:
        raise ConfigError(
            f"train.minibatches={train.minibatches} is more than train.questions_per_step={train.questions_per_step}, "
            "and each minibatch needs at least one question",
            hint="lower train.minibatches, or raise train.questions_per_step",
        )
    context = context_of(settings.model)
    if settings.backend == "verl":
        _check_verl(settings)
    elif context is not None and settings.local.max_context > context:
        raise ConfigError(
            f"local.max_context={settings.local.max_context} is more than the context of {settings.model}, "
            f"{context} tokens",
            hint=f"use local.max_context={context}, or extend the context with rope_scaling in the model's config.json",
        )
    elif settings.agent.max_tokens >= settings.local.max_context:
        raise ConfigError(
            f"agent.max_tokens={settings.agent.max_tokens} leaves no room for a prompt in "
            f"local.max_context={settings.local.max_context}",
            hint="lower agent.max_tokens, or raise local.max_context up to the context length of the model",
        )


def disk_needed(settings: Settings, parameters: int) -> tuple[int, int]:
    """Return the bytes of a run's checkpoints, and the free bytes of their disk."""
    return _checkpoint_bytes(settings, parameters), free_disk(settings.runs_dir)


def _checkpoint_bytes(settings: Settings, parameters: int) -> int:
    lora, train = settings.verl.lora_rank > 0, settings.train
    # The next checkpoint is written before the oldest is removed.
    kept = min(train.keep_checkpoints + 1, math.ceil(train.steps / train.save_every))
    if not lora:
        initial = bool(train.kl_coef) and settings.backend != "verl"  # the reference model of the KL penalty, once
        return (_SAVED_BYTES * kept + _WEIGHT_BYTES * initial) * parameters
    each = _WEIGHT_BYTES // 2 if settings.backend == "verl" else _WEIGHT_BYTES  # verl keeps them in bf16
    return each * parameters * (kept + 1)  # LoRA's frozen weights are saved once more


def verl_is_installed() -> bool:
    """Return whether verl can be imported; this process must not load torch."""
    return importlib.util.find_spec("verl") is not None


def _check_host(settings: Settings) -> None:
    verl = settings.backend == "verl"
    check_model_folder(settings.model)
    check_writable(settings.runs_dir, "runs_dir")  # before its free disk space is measured
    if not verl:
        check_writable(settings.local.cache_dir, "local.cache_dir")
    _check_open_files(settings)
    if verl:
        _check_gpus(settings)
    parameters = count_parameters(settings.model)
    if parameters is not None and not (verl and settings.verl.lora_rank):
        check_free_disk(settings, parameters)
    if parameters is not None and not verl:
        check_host_memory(settings, parameters)


def check_free_disk(settings: Settings, parameters: int) -> None:
    needed, free = disk_needed(settings, parameters)
    if free < needed:
        raise ConfigError(
            f"the checkpoints of this run need {shown_size(needed)}, and {shown_size(free)} are free at "
            f"{settings.runs_dir}",
            hint="free space there, name another disk with runs_dir=FOLDER, or lower train.keep_checkpoints",
        )


def check_host_memory(settings: Settings, parameters: int) -> None:
    each = _LORA_TRAINED_BYTES if settings.verl.lora_rank else _TRAINED_BYTES
    each += 4 if settings.train.kl_coef else 0
    needed, free = each * parameters, available_memory()
    if free is not None and free < needed:
        raise ConfigError(
            f"training this model of {parameters / 1e6:.0f} M parameters takes {needed / 1e9:.1f} GB of memory "
            f"and more for the batches; {free / 1e9:.1f} GB are free",
            hint="train a smaller model, only adapters with --lora-rank 16, or on a GPU with --backend verl",
        )


def _check_open_files(settings: Settings) -> None:
    runner = settings.runner
    wanted = _FILES + _FILES_PER_ROLLOUT * runner.concurrency * runner.n_runners  # store and proxy serve every rollout
    if (limit := raise_open_files(wanted)) < wanted:
        raise ConfigError(
            f"{runner.n_runners} runners of {runner.concurrency} rollouts each need {wanted} open files, and this "
            f"process may open {limit}",
            hint=f"run `ulimit -n {wanted}` first, or lower runner.concurrency",
        )


def _check_gpus(settings: Settings) -> None:
    if settings.verl.nnodes == 1 and (found := gpu_names()) and len(found) < settings.verl.n_gpus:
        raise ConfigError(
            f"verl.n_gpus={settings.verl.n_gpus}, but this host has {len(found)}: {', '.join(found)}",
            hint=f"use --n-gpus {len(found)}",
        )


def _check_verl(settings: Settings) -> None:
    if not verl_is_installed():
        raise ConfigError(
            "the verl backend is not installed",
            hint="run `uv sync --extra gpu`, or use --backend local on this machine",
        )
    if not settings.model:
        raise ConfigError("the verl backend needs a model", hint="give --model a Hugging Face folder or id")
    verl_config.check(settings)
    refuse(settings, plan_memory(settings))
    try:
        bind(settings.verl.host).close()
    except TrainingError as error:
        raise ConfigError(
            f"verl.host is not an address of this host: {error.message}",
            hint="set it to the address at which the other hosts of the Ray cluster reach this host",
        ) from None
