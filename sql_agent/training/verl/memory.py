"""Estimate the GPU memory of each phase of a verl run, choose the size of micro-batches, or refuse the run.

Sources: verl 0.9 trains with FSDP1 in fp32 and computes in bf16; its fused kernel computes logits in chunks of 512
tokens; AdamW keeps two fp32 moments. The bytes of a layer were counted on Qwen2 (tests/training/policy/test_shape.py),
and the constants below were fitted to the peaks in docs/lab/2026-11-21.md.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from sql_agent.config.settings import Settings
from sql_agent.errors import ConfigError
from sql_agent.system.resources import gpu_memory
from sql_agent.training.policy.model_config import Shape, config_of, context_of
from sql_agent.training.verl.interprocess import typed

GB = 1e9
_USABLE = 0.95  # share of the free memory; the rest is lost between the allocator's blocks
_CONTEXTS = 3.5 * GB  # bytes for CUDA contexts of trainer and vLLM, vLLM's CUDA graphs, cuBLAS and NCCL
_ONE_CONTEXT = 1.5 * GB  # the same bytes without vLLM
_BUCKET = 2 << 30  # verl's rollout.checkpoint_engine.update_weights_bucket_megabytes
_VLLM_SHARE = 0.4  # share of the free memory; a larger key-value cache made no step faster
_VLLM_BATCH = 8192  # rollout.max_num_batched_tokens
_CACHE_STEP = 256 << 20  # bytes; vLLM reuses compiled graphs only if its key-value cache has the same size
_MIN_SEQUENCES = 4  # number of rollouts of maximum length for which the key-value cache must have room
_MOST_TOKENS = 24576  # maximum; about 66 rollouts, of which more are hardly faster (docs/lab/2026-11-28.md)
_ENOUGH_TOKENS = 8192  # below this, gradient checkpointing costs less time than many small micro-batches
_LOGITS_CHUNK = 512
_CHUNK_BYTES = 40  # bytes for each logit of a chunk: about ten fp32 copies in the fused kernel's backward pass
_LOGIT_BYTES = 16  # bytes for each logit without the fused kernel
_BACKWARD_LAYERS = 0.75  # bytes of the gradients inside one layer, as a share of the activations that the layer keeps
_UNEVEN = 1.1  # what verl splits itself may exceed the limit of tokens by this factor; else it is a reserve
_SFT_MOST_TOKENS = 8192
_SFT_ENOUGH_TOKENS = 4096
_SAMPLED = 0.5  # share of a demonstration's tokens for which logits are computed

_TOKENS, _CHECKPOINTING = "actor.ppo_max_token_len_per_gpu", "model.enable_gradient_checkpointing"

Parts = dict[str, float]


@dataclass(frozen=True)
class Card:
    """A GPU: its `total` and `free` bytes."""

    total: float
    free: float

    @property
    def usable(self) -> float:
        return _USABLE * self.free

    @property
    def torch_share(self) -> float:
        """The share (0–1) of the card's memory for torch's allocator, which leaves room for the CUDA context."""
        return max(0.0, self.free - _ONE_CONTEXT) / self.total


@dataclass(frozen=True)
class Load:
    """The properties of a run that determine the memory of each of its `gpus` GPUs.

    `length` is the maximum number of tokens in a rollout. With `is_apart`, other GPUs run vLLM. `tokens` (of a
    micro-batch), `checkpointing` and `vllm` (bytes) are None unless `verl.config` sets them.
    """

    length: int
    gpus: int = 1
    lora_rank: int = 0
    is_fused: bool = True
    is_apart: bool = False
    fine_tunes: bool = True
    tensor_parallel: int = 1
    tokens: int | None = None
    checkpointing: bool | None = None
    vllm: float | None = None


@dataclass(frozen=True)
class MemoryPlan:
    """The size of micro-batches on `card`, and the estimated bytes of each phase.

    A micro-batch of GRPO has at most `tokens` tokens, in which a shared prompt counts once; `checkpointing` turns
    gradient checkpointing on. `sft_tokens` and `sft_checkpointing` are the same for supervised fine-tuning. vLLM gets
    `vllm` bytes, `cache` of them for its key-value cache; if None, vLLM measures the free memory itself. `phases` is
    {phase: {part: bytes}}, empty if the model's dimensions are unknown.
    """

    card: Card
    tokens: int
    checkpointing: bool
    sft_tokens: int
    sft_checkpointing: bool
    vllm: float
    phases: Mapping[str, Parts]
    cache: int | None = None

    @property
    def worst(self) -> tuple[str, float]:
        """The phase that needs the most memory, and the number of bytes."""
        return max(((name, sum(parts.values())) for name, parts in self.phases.items()), key=lambda phase: phase[1])

    @property
    def summary(self) -> str:
        """A line for the user: the memory of the largest phase, and the size of a micro-batch."""
        again = ", with gradient checkpointing" if self.checkpointing else ""
        limit = f"micro-batches have at most {self.tokens} tokens, a shared prompt counted once{again}"
        chosen = f"{limit}; vLLM gets {self.vllm / GB:.1f} GB"
        if not self.phases:
            return f"GPU memory is not estimated, because the model's dimensions are unknown; {chosen}"
        name, size = self.worst
        return f"GPU memory: {name} needs {size / GB:.1f} of {self.card.usable / GB:.1f} GB; {chosen}"

    @property
    def fits(self) -> bool:
        return not self.phases or self.worst[1] <= self.card.usable


def _estimate(shape: Shape, load: Load, card: Card) -> MemoryPlan:
    """Choose the largest micro-batches of a model of `shape` that fit on `card`, and estimate each phase's bytes."""
    fixed = _fixed_parts(shape, load)
    vllm, cache = _vllm_bytes(shape, load, card, sum(fixed["rollouts"].values()))
    room = card.usable - sum(fixed["update"].values())
    token_bytes = _token_bytes(shape, load, checkpointing=False), _token_bytes(shape, load, checkpointing=True)
    tokens, checkpointing = _micro_batch(load, room, token_bytes)
    phases = {
        "rollouts": fixed["rollouts"] | ({} if load.is_apart else {"vLLM": vllm}),
        "update": fixed["update"] | {"activations": token_bytes[checkpointing] * tokens},
        "AdamW's step": fixed["step"],
    }
    sft, sft_tokens, sft_checkpointing = _fine_tuning(shape, load, card)
    if load.fine_tunes:
        phases = {"fine-tuning": sft} | phases
    return MemoryPlan(card, tokens, checkpointing, sft_tokens, sft_checkpointing, vllm, phases, cache)


def _token_bytes(shape: Shape, load: Load, *, checkpointing: bool) -> float:
    """Return the bytes of an update for each token of a micro-batch."""
    kept = 2 * shape.hidden * shape.layers + shape.layer_bytes if checkpointing else shape.layer_bytes * shape.layers
    logits = 0 if load.is_fused else _LOGIT_BYTES * shape.vocabulary
    return _UNEVEN * (kept + _BACKWARD_LAYERS * shape.layer_bytes + logits)


def _fixed_parts(shape: Shape, load: Load) -> dict[str, Parts]:
    """Return the bytes of each phase that do not depend on vLLM's share or on the size of micro-batches."""
    trained = shape.adapter_parameters(load.lora_rank) if load.lora_rank else shape.parameters
    # With LoRA the frozen weights are in bf16.
    weights = (2 * shape.parameters + 4 * trained if load.lora_rank else 4 * shape.parameters) / load.gpus
    moments, gradients = 8 * trained / load.gpus, 4 * trained / load.gpus
    in_bf16 = 2 * (shape.embedding_parameters + 2 * shape.layer_parameters)
    logits = _CHUNK_BYTES * _LOGITS_CHUNK * shape.vocabulary if load.is_fused else 0
    output_gradient = 0 if load.lora_rank else 4 * shape.vocabulary * shape.hidden
    context = _ONE_CONTEXT if load.is_apart else _CONTEXTS
    state: Parts = {"weights": weights, "AdamW": moments, "CUDA and vLLM's graphs": context}
    return {
        # verl sends a copy of the weights to vLLM, in buckets.
        "rollouts": state | {"copy of the weights": weights + _BUCKET},
        "update": state
        | {"gradients": gradients, "weights in bf16": in_bf16, "logits of a chunk": logits + output_gradient},
        "step": state | {"gradients": gradients, "AdamW's temporary copy": 4 * trained / load.gpus},
    }


def _vllm_bytes(shape: Shape, load: Load, card: Card, others: float) -> tuple[float, int | None]:
    """Return the bytes of vLLM and of its cache; vLLM gets what `others` leave, but enough for a few rollouts."""
    if load.vllm is not None:
        return load.vllm, None
    model = (2 * shape.parameters + 8 * _VLLM_BATCH * shape.intermediate) / load.tensor_parallel + 0.5 * GB
    least = model + _MIN_SEQUENCES * load.length * shape.cache_bytes / load.tensor_parallel
    size = max(least, min(_VLLM_SHARE * card.free, card.usable - (0 if load.is_apart else others)))
    return int(size), int(max(least - model, (size - model) // _CACHE_STEP * _CACHE_STEP))


def _micro_batch(load: Load, room: float, token_bytes: tuple[float, float]) -> tuple[int, bool]:
    """Return the number of tokens of a micro-batch that fits into `room` bytes, and whether to use checkpointing.

    `token_bytes` are the bytes of a token without and with gradient checkpointing.
    """
    checkpointing = load.checkpointing
    if checkpointing is None:
        checkpointing = room / token_bytes[False] < (load.tokens or max(load.length, _ENOUGH_TOKENS))
    tokens = load.tokens or min(max(_MOST_TOKENS, load.length), int(room / token_bytes[checkpointing]))
    return max(tokens, load.length), checkpointing


def _fine_tuning(shape: Shape, load: Load, card: Card) -> tuple[Parts, int, bool]:
    """Return the bytes of supervised fine-tuning by part, the tokens of a micro-batch, and whether to checkpoint."""
    trained = shape.adapter_parameters(load.lora_rank) if load.lora_rank else shape.parameters
    parts: Parts = {"CUDA and vLLM's graphs": _ONE_CONTEXT, "AdamW": 8 * trained, "gradients": 4 * trained}
    if load.lora_rank:
        parts |= {"weights": 2 * shape.parameters + 4 * trained}
        layer, residual = shape.layer_bytes, 2 * shape.hidden
    else:
        parts |= {"weights": 4 * shape.parameters, "weights in bf16": 2 * shape.parameters}
        layer, residual = shape.autocast_layer_bytes, 4 * shape.hidden
    room, logits = card.usable - sum(parts.values()), _SAMPLED * _LOGIT_BYTES * shape.vocabulary
    kept = (shape.layers * layer, shape.layers * residual + layer)
    each = [size + _BACKWARD_LAYERS * layer + logits for size in kept]
    least = min(load.length, _SFT_ENOUGH_TOKENS)
    checkpointing = room / each[False] < least
    tokens = max(least, min(_SFT_MOST_TOKENS, int(room / each[checkpointing])))
    return parts | {"activations": each[checkpointing] * tokens}, tokens, checkpointing


def plan_memory(settings: Settings) -> MemoryPlan:
    """Plan the GPU memory of a run of the backend `verl`. Raises ConfigError when the memory of the GPU is unknown.

    If the model's dimensions are unknown, plan the smallest micro-batches (the length of one rollout) with gradient
    checkpointing, unless `verl.config` sets them.
    """
    card, load = card_of(settings), _load_of(settings)
    if shape := Shape.of(config_of(settings.model) or {}):
        return _estimate(shape, load, card)
    vllm = load.vllm if load.vllm is not None else _VLLM_SHARE * card.free
    checkpointing = True if load.checkpointing is None else load.checkpointing
    return MemoryPlan(card, load.tokens or load.length, checkpointing, _SFT_ENOUGH_TOKENS, True, vllm, {})


def refuse(settings: Settings, plan: MemoryPlan) -> None:
    """Raise ConfigError when the `plan` for `settings` does not fit into the memory of its GPU.

    The hint lists changes; each of them alone makes the run fit. A run that `verl.config` gives another strategy or
    other FSDP options, such as offloading, is not refused, because the estimate ignores these options.
    """
    offloads = any(_given(settings, f"actor.{name}") for name in ("strategy", "fsdp_config"))
    shape = Shape.of(config_of(settings.model) or {})
    if shape is None or plan.fits or offloads:
        return
    load = _load_of(settings)
    free = replace(load, tokens=None, checkpointing=None, vllm=None)
    changes = {
        "leave the tokens, checkpointing and vLLM's share out of verl.config": free,
        f"limit a rollout to {load.length // 2} tokens (verl.config.data)": replace(free, length=load.length // 2),
        "train adapters (--lora-rank 32)": replace(free, lora_rank=load.lora_rank or 32),
        f"use {2 * load.gpus} GPUs (--n-gpus)": replace(free, gpus=2 * load.gpus),
    }
    card = plan.card
    fitting = [text for text, changed in changes.items() if changed != load and _estimate(shape, changed, card).fits]
    phase, needed = plan.worst
    part, size = max(plan.phases[phase].items(), key=lambda item: item[1])
    raise ConfigError(
        f"{settings.model} does not fit: {phase} needs {needed / GB:.1f} GB of each GPU, and {card.usable / GB:.1f} of "
        f"{card.free / GB:.1f} GB can be used; the largest part is {part}, {size / GB:.1f} GB",
        hint="; ".join(fitting) or "train a smaller model, or use a larger GPU",
    )


def smaller_micro_batches(settings: Settings, options: Mapping[str, Any], card: Card) -> dict[str, Any]:
    """Return settings, by name, that halve the tokens of a micro-batch in `options` and turn checkpointing on.

    `options` are those of `verl_options`. The free memory of `card` is set too, because the processes that ran out of
    memory may still use it. Returns an empty dict if `settings` already set the tokens of a micro-batch, as after an
    earlier call, or if the micro-batch is as small as it can be.
    """
    actor, model = options["actor_rollout_ref"]["actor"], options["actor_rollout_ref"]["model"]
    before = (actor["ppo_max_token_len_per_gpu"], model["enable_gradient_checkpointing"])
    after = (max(before[0] // 2, rollout_length(settings)), True)
    if after == before or _given(settings, _TOKENS) is not None:
        return {}
    prefix = "verl.config.actor_rollout_ref."
    smaller = {f"{prefix}{_TOKENS}": after[0], f"{prefix}{_CHECKPOINTING}": after[1]}
    return smaller | {"verl.gpu_memory_gb": round(card.free / GB, 1)}


def card_of(settings: Settings) -> Card:
    """Return the GPU to plan for: with `verl.gpu_memory_gb` free, or with "auto" the one with the least free memory.

    Raises ConfigError when the setting is "auto" and this host has no usable GPU.
    """
    found, given = gpu_memory(), settings.verl.gpu_memory_gb
    if given != "auto":
        planned = given * GB
        return Card(found[0] if found else planned, planned)
    if found is None:
        raise ConfigError(
            "the memory of the GPU is unknown: nvidia-smi lists no GPU",
            hint="set the memory in GB, such as verl.gpu_memory_gb=80",
        )
    return Card(*found)


def rollout_length(settings: Settings) -> int:
    """Return the maximum number of tokens in a rollout, prompt included, limited by the model's context length."""
    data = settings.verl.config.get("data", {})
    length = int(data.get("max_prompt_length", 2048)) + int(data.get("max_response_length", 6144))
    return min(length, context_of(settings.model) or length)


def _load_of(settings: Settings) -> Load:
    verl = settings.verl
    apart = verl.trainer_mode == "separate_async"
    share = _given(settings, "rollout.gpu_memory_utilization")
    return Load(
        length=rollout_length(settings),
        gpus=verl.nnodes * (verl.n_gpus // 2 if apart else verl.n_gpus),
        lora_rank=verl.lora_rank,
        is_fused=bool(_given(settings, "model.use_fused_kernels")),
        is_apart=apart,
        fine_tunes=settings.sft.steps > 0,
        tensor_parallel=_given(settings, "rollout.tensor_model_parallel_size") or 1,
        tokens=_given(settings, _TOKENS),
        checkpointing=_given(settings, _CHECKPOINTING),
        vllm=None if share is None else share * card_of(settings).total,
    )


def _given(settings: Settings, name: str) -> Any:
    """Return the value of `verl.config.actor_rollout_ref.NAME`, or None if the user did not set it."""
    value: Any = settings.verl.config.get("actor_rollout_ref", {})
    for key in name.split("."):
        value = value.get(key) if isinstance(value, dict) else None
    return typed(value)
