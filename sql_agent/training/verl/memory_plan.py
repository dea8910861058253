"""Plan the GPU memory of a run from its settings, and refuse a run that does not fit."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from sql_agent.config.settings import Settings
from sql_agent.errors import ConfigError
from sql_agent.system.resources import gpu_memory
from sql_agent.training.policy.context import config_of, context_of
from sql_agent.training.policy.shape import Shape
from sql_agent.training.verl.memory import GB, Card, Load, MemoryPlan, reckon, unknown_sizes

_TOKENS, _CHECKPOINTING = "actor.ppo_max_token_len_per_gpu", "model.enable_gradient_checkpointing"


def plan_memory(settings: Settings) -> MemoryPlan:
    """Plan the GPU memory of a run of the backend `verl`. Raises ConfigError when the memory of the GPU is unknown."""
    card, load = card_of(settings), _load_of(settings)
    shape = Shape.of(config_of(settings.model) or {})
    return unknown_sizes(card, load) if shape is None else reckon(shape, load, card)


def refuse(settings: Settings, plan: MemoryPlan) -> None:
    """Raise ConfigError when `plan`, that of `settings`, does not fit into the memory of its GPU."""
    shape = Shape.of(config_of(settings.model) or {})
    if shape is not None and not plan.fits and not _offloads(settings):
        raise _refusal(settings.model, shape, _load_of(settings), plan)


def smaller_passes(settings: Settings, options: Mapping[str, Any], card: Card) -> dict[str, Any]:
    """Return the settings with half of the tokens in a pass of `options` (see `verl_options`), and with checkpointing.

    They name the memory of the `card`, because the processes that ran out of it may still hold it. Empty if `settings`
    give the tokens, as they do when they were halved before, or if a pass can be no smaller.
    """
    actor, model = options["actor_rollout_ref"]["actor"], options["actor_rollout_ref"]["model"]
    before = (actor["ppo_max_token_len_per_gpu"], model["enable_gradient_checkpointing"])
    after = (max(before[0] // 2, rollout_length(settings)), True)
    if after == before or _given(settings, _TOKENS) is not None:
        return {}
    prefix = "verl.config.actor_rollout_ref."
    passes = {f"{prefix}{_TOKENS}": after[0], f"{prefix}{_CHECKPOINTING}": after[1]}
    return passes | {"verl.gpu_memory_gb": round(card.free / GB, 1)}


def card_of(settings: Settings) -> Card:
    """Return the GPU of `verl.gpu_memory_gb`, or the smallest GPU of this host. Raises ConfigError without either."""
    found, given = gpu_memory(), settings.verl.gpu_memory_gb
    if given != "auto":
        planned = given * GB
        return Card(found[0] if found else planned, planned)
    if found is None:
        raise ConfigError(
            "the memory of the GPU is unknown: nvidia-smi lists no GPU",
            hint="give the memory in GB, such as verl.gpu_memory_gb=80",
        )
    return Card(*found)


def rollout_length(settings: Settings) -> int:
    """Return the maximum number of tokens in a rollout, prompt included; at most the model's context length."""
    data = settings.verl.config.get("data", {})
    length = int(data.get("max_prompt_length", 2048)) + int(data.get("max_response_length", 6144))
    return min(length, context_of(settings.model) or length)


def _load_of(settings: Settings) -> Load:
    """Return the load of a run with `settings`; what `verl.config` gives is taken as it is."""
    verl = settings.verl
    apart = verl.trainer_mode == "separate_async"
    share = _given(settings, "rollout.gpu_memory_utilization")
    checkpointing = _given(settings, _CHECKPOINTING)
    tokens = _given(settings, _TOKENS)
    return Load(
        length=rollout_length(settings),
        gpus=verl.nnodes * (verl.n_gpus // 2 if apart else verl.n_gpus),
        lora_rank=verl.lora_rank,
        is_fused=_is_true(_given(settings, "model.use_fused_kernels")),
        is_apart=apart,
        fine_tunes=settings.sft.steps > 0,
        tensor_parallel=int(_given(settings, "rollout.tensor_model_parallel_size") or 1),
        tokens=None if tokens is None else int(tokens),
        checkpointing=None if checkpointing is None else _is_true(checkpointing),
        vllm=None if share is None else float(share) * card_of(settings).total,
    )


def _given(settings: Settings, name: str) -> Any:
    """Return the value of `verl.config.actor_rollout_ref.NAME`; None if it is not given."""
    value: Any = settings.verl.config.get("actor_rollout_ref", {})
    for key in name.split("."):
        value = value.get(key) if isinstance(value, dict) else None
    return value


def _is_true(value: Any) -> bool:
    return value is True or str(value).lower() == "true"


def _offloads(settings: Settings) -> bool:
    """Return whether `verl.config` moves parts of the training state elsewhere, which is not reckoned."""
    return any(_given(settings, f"actor.{name}") for name in ("strategy", "fsdp_config"))


def _refusal(model: str, shape: Shape, load: Load, plan: MemoryPlan) -> ConfigError:
    phase, needed = plan.worst
    part, size = max(plan.phases[phase].items(), key=lambda item: item[1])
    parts = f"the largest part is {part}, {size / GB:.1f} GB"
    return ConfigError(
        f"{model} does not fit: {phase} needs {needed / GB:.1f} GB of each GPU, and {plan.card.usable / GB:.1f} of "
        f"{plan.card.free / GB:.1f} GB can be used; {parts}",
        hint="; ".join(_what_fits(shape, load, plan.card)) or "train a smaller model, or use a larger GPU",
    )


def _what_fits(shape: Shape, load: Load, card: Card) -> list[str]:
    """Return advice: changes of which each by itself makes the run fit."""
    free = replace(load, tokens=None, checkpointing=None, vllm=None)
    changes = {
        "leave the tokens, checkpointing and vLLM's share out of verl.config": free,
        f"halve the {load.length} tokens of a rollout (verl.config.data)": replace(free, length=load.length // 2),
        "train adapters (--lora-rank 32)": replace(free, lora_rank=load.lora_rank or 32),
        f"use {2 * load.gpus} GPUs (--n-gpus)": replace(free, gpus=2 * load.gpus),
    }
    return [advice for advice, changed in changes.items() if changed != load and reckon(shape, changed, card).fits]
