"""Check that this host has what a run needs and that no setting contradicts another, and show what the run needs."""

from __future__ import annotations

import importlib.util
import math
from itertools import chain

from sql_agent.cli.model_choice import check_model_folder, count_parameters
from sql_agent.config.settings import Settings
from sql_agent.errors import ConfigError, ModelError, TrainingError
from sql_agent.rollouts.preflight import check_opentelemetry
from sql_agent.runs.console import TextTable, Ui, print_table
from sql_agent.runs.trackers import check_trackers
from sql_agent.system.files import check_writable
from sql_agent.system.resources import available_memory, free_disk, gpu_names, raise_open_files, shown_size
from sql_agent.system.servers import bind
from sql_agent.training.duration import estimate
from sql_agent.training.policy.model_config import Shape, config_of, context_of
from sql_agent.training.verl import config as verl_config
from sql_agent.training.verl.memory import GB, MemoryPlan, plan_memory, refuse

_SAVED_BYTES = 12  # per parameter in a checkpoint: the weight and AdamW's two moments, all fp32
_TRAINED_BYTES = 18  # per parameter in memory: as in a checkpoint, the gradient, and a bf16 copy for sampling
_WEIGHT_BYTES = 4  # per parameter, fp32
_LORA_TRAINED_BYTES = 10  # per parameter: the fp32 weight, a bf16 copy for sampling, an fp32 copy while it is saved
_FILES_PER_ROLLOUT = 4  # connections to the proxy, the store and the judge, and a spare one
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


def _checkpoint_bytes(settings: Settings, parameters: int) -> int:
    lora, train = settings.verl.lora_rank > 0, settings.train
    # The next checkpoint is written before the oldest is removed.
    kept = min(train.keep_checkpoints + 1, math.ceil(train.steps / train.save_every))
    if not lora:
        initial = bool(train.kl_coef) and settings.backend != "verl"  # a reference model for the KL penalty
        return (_SAVED_BYTES * kept + _WEIGHT_BYTES * initial) * parameters
    each = _WEIGHT_BYTES // 2 if settings.backend == "verl" else _WEIGHT_BYTES  # verl saves bf16
    return each * parameters * (kept + 1)  # the frozen weights of LoRA are saved once more


def verl_is_installed() -> bool:
    return importlib.util.find_spec("verl") is not None  # an import would load torch, which this process must not


def _check_host(settings: Settings) -> None:
    verl = settings.backend == "verl"
    check_model_folder(settings.model)
    check_writable(settings.runs_dir, "runs_dir")  # checked before its free disk space is measured
    if not verl:
        check_writable(settings.local.cache_dir, "local.cache_dir")
    _check_open_files(settings)
    gpus, wanted = gpu_names() if verl and settings.verl.nnodes == 1 else [], settings.verl.n_gpus
    if gpus and len(gpus) < wanted:
        raise ConfigError(
            f"verl.n_gpus={wanted}, but this host has {len(gpus)}: {', '.join(gpus)}", hint=f"use --n-gpus {len(gpus)}"
        )
    parameters = count_parameters(settings.model)
    if parameters is not None and not (verl and settings.verl.lora_rank):
        _check_free_disk(settings, parameters)
    if parameters is not None and not verl:
        _check_host_memory(settings, parameters)


def _check_free_disk(settings: Settings, parameters: int) -> None:
    needed, free = _checkpoint_bytes(settings, parameters), free_disk(settings.runs_dir)
    if free < needed:
        raise ConfigError(
            f"the checkpoints of this run need {shown_size(needed)}, and {shown_size(free)} are free at "
            f"{settings.runs_dir}",
            hint="free space there, name another disk with runs_dir=FOLDER, or lower train.keep_checkpoints",
        )


def _check_host_memory(settings: Settings, parameters: int) -> None:
    each = _LORA_TRAINED_BYTES if settings.verl.lora_rank else _TRAINED_BYTES
    each += 4 if settings.train.kl_coef else 0
    needed, free = each * parameters, available_memory()
    if free is not None and free < needed:
        raise ConfigError(
            f"training this model of {parameters / 1e6:.0f} M parameters takes {needed / 1e9:.1f} GB of memory "
            f"without the batches, and {free / 1e9:.1f} GB are free",
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


def show_forecast(settings: Settings, ui: Ui) -> None:
    """Print the memory, disk and time that a run needs. Raises ConfigError if this host lacks memory or disk."""
    parameters = _parameters(settings)
    trained = f"LoRA adapters of rank {settings.verl.lora_rank}" if settings.verl.lora_rank else "all weights"
    name = settings.model or "SmolLM2-135M-Instruct"
    ui.say(f"{name}, {parameters / 1e9:.2f} B parameters, {trained} trained; backend {settings.backend}")
    plan = None
    if settings.backend == "verl":
        verl_config.check(settings)
        plan = plan_memory(settings)
        _show_memory(plan, ui)
    needed, free = _checkpoint_bytes(settings, parameters), free_disk(settings.runs_dir)
    ui.say(f"Disk: {shown_size(needed)} for checkpoints, {shown_size(free)} free at {settings.runs_dir}")
    if settings.backend == "local" and (memory := available_memory()) is not None:
        ui.say(f"Memory: {shown_size(memory)} available")
    duration = estimate(settings, parameters)
    rollout_s, update_s = duration.rollout_s, duration.update_s
    parts = ", ".join(f"{name} {seconds / 60:.1f}" for name, seconds in duration.parts.items() if seconds)
    ui.say(f"A step: {rollout_s + update_s:.1f} s (rollouts {rollout_s:.1f}, update and the rest {update_s:.1f})")
    ui.say(f"In all: {duration.total_s / 60:.0f} minutes ({parts})")
    ui.say(f"The times are an estimate, scaled from {duration.source}")
    if plan is not None:
        refuse(settings, plan)
    else:
        _check_host_memory(settings, parameters)
    _check_free_disk(settings, parameters)


def _parameters(settings: Settings) -> int:
    """Return the number of the model's parameters, from its weights or its config.json."""
    counted = count_parameters(settings.model)
    if counted is not None:
        return counted
    shape = Shape.of(config_of(settings.model) or {})
    if shape is None:
        raise ModelError(
            f"the sizes of {settings.model} are unknown: there is no config.json of a dense model in a folder of that "
            "name or in the hub's cache",
            hint="download the model first, and give its folder",
        )
    return shape.parameters


def _show_memory(plan: MemoryPlan, ui: Ui) -> None:
    card, phases = plan.card, plan.phases.values()
    ui.say(
        f"Memory of each GPU in GB, for a card with {card.free / GB:.1f} GB free, of which {card.usable / GB:.1f} "
        "can be used"
    )
    rows = [
        (name, [f"{parts[name] / GB:.1f}" if name in parts else "" for parts in phases])
        for name in dict.fromkeys(chain(*phases))
    ]
    sums = ("sum", [f"{sum(parts.values()) / GB:.1f}" for parts in phases])
    print_table(TextTable("", list(plan.phases), [rows, [sums]]), ui.console)
    ui.say(plan.summary)
