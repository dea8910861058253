"""Reckon the memory of a GPU in each phase of a run of verl, choose how much to compute at once, or refuse the run.

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
from sql_agent.training.verl.bridge import typed

GB = 1e9
_USABLE = 0.95  # of the free memory; the rest is lost between the allocator's blocks
_CONTEXTS = 3.5 * GB  # CUDA contexts of trainer and vLLM, vLLM's CUDA graphs, cuBLAS, NCCL
_ONE_CONTEXT = 1.5 * GB
_BUCKET = 2 << 30  # verl's rollout.checkpoint_engine.update_weights_bucket_megabytes
_VLLM_SHARE = 0.4  # of the free memory; a larger key-value cache made no step faster
_VLLM_BATCH = 8192  # rollout.max_num_batched_tokens
_MIN_SEQUENCES = 4  # of the longest rollout, that the key-value cache must hold
_MOST_TOKENS = 24576  # a larger forward pass is no faster
_ENOUGH_TOKENS = 8192  # with fewer, gradient checkpointing costs less than many small passes
_LOGITS_CHUNK = 512
_CHUNK_BYTES = 40  # for each logit of a chunk: about ten fp32 copies in the fused kernel's backward pass
_LOGIT_BYTES = 16  # for each logit without the fused kernel
_BACKWARD_LAYERS = 0.75  # gradients inside one layer, in units of what the layer keeps
_UNEVEN = 1.1  # verl balances micro-batches by work, so one of them may exceed the tokens that it should have
SFT_TOKENS = 8192
_SFT_ENOUGH = 4096
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
        """The share of the card for torch's allocator, beside the CUDA context."""
        return max(0.0, self.free - _ONE_CONTEXT) / self.total


@dataclass(frozen=True)
class Load:
    """What a run computes on each of `gpus` GPUs; `tokens`, `checkpointing` and `vllm` (bytes) only if they are given.

    With `is_apart`, other GPUs sample.
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
    """How much to compute at once on a `card`, and the bytes of each phase by part.

    A pass of GRPO has `tokens` tokens, and with `checkpointing` it computes activations again. `sft_tokens` and
    `sft_checkpointing` are the same for supervised fine-tuning. `vllm` are vLLM's bytes. `phases` is {phase: {part:
    bytes}}, empty if the model's sizes are unknown.
    """

    card: Card
    tokens: int
    checkpointing: bool
    sft_tokens: int
    sft_checkpointing: bool
    vllm: float
    phases: Mapping[str, Parts]

    @property
    def worst(self) -> tuple[str, float]:
        """The phase that needs the most memory, and the number of bytes."""
        return max(((name, sum(parts.values())) for name, parts in self.phases.items()), key=lambda phase: phase[1])

    @property
    def summary(self) -> str:
        """A line for the user: the phase that needs most, and the size of a pass."""
        again = ", activations computed again" if self.checkpointing else ""
        passes = f"passes of an update have at most {self.tokens} tokens{again}; vLLM gets {self.vllm / GB:.1f} GB"
        if not self.phases:
            return f"GPU memory is not reckoned, because the model's sizes are unknown: {passes}"
        name, size = self.worst
        return f"GPU memory: {name} needs {size / GB:.1f} of {self.card.usable / GB:.1f} GB; {passes}"

    @property
    def fits(self) -> bool:
        return not self.phases or self.worst[1] <= self.card.usable


def reckon(shape: Shape, load: Load, card: Card) -> MemoryPlan:
    """Choose the largest passes of a model of `shape` that fit on `card`, and reckon the bytes of every phase."""
    fixed = _fixed_parts(shape, load)
    vllm = _vllm_bytes(shape, load, card, sum(fixed["rollouts"].values()))
    room = card.usable - sum(fixed["update"].values())
    tokens, checkpointing = _passes(
        load, room, (per_token(shape, load, checkpointing=False), per_token(shape, load, checkpointing=True))
    )
    each = per_token(shape, load, checkpointing=checkpointing)
    phases = {
        "rollouts": fixed["rollouts"] | ({} if load.is_apart else {"vLLM": vllm}),
        "update": fixed["update"] | {"activations": each * tokens},
        "AdamW's step": fixed["step"],
    }
    sft, sft_tokens, sft_checkpointing = _fine_tuning(shape, load, card)
    if load.fine_tunes:
        phases = {"fine-tuning": sft} | phases
    return MemoryPlan(card, tokens, checkpointing, sft_tokens, sft_checkpointing, vllm, phases)


def per_token(shape: Shape, load: Load, *, checkpointing: bool) -> float:
    """Return the bytes of an update for each token of `ppo_max_token_len_per_gpu`."""
    kept = 2 * shape.hidden * shape.layers + shape.layer_bytes if checkpointing else shape.layer_bytes * shape.layers
    logits = 0 if load.is_fused else _LOGIT_BYTES * shape.vocabulary
    return _UNEVEN * (kept + _BACKWARD_LAYERS * shape.layer_bytes + logits)


def _fixed_parts(shape: Shape, load: Load) -> dict[str, Parts]:
    """Return the bytes of each phase that depend on no choice."""
    trained = shape.adapter_parameters(load.lora_rank) if load.lora_rank else shape.parameters
    # The weights that adapters leave as they are stay in bf16.
    weights = (2 * shape.parameters + 4 * trained if load.lora_rank else 4 * shape.parameters) / load.gpus
    moments, gradients = 8 * trained / load.gpus, 4 * trained / load.gpus
    in_bf16 = 2 * (shape.embedding_parameters + 2 * shape.layer_parameters)
    logits = _CHUNK_BYTES * _LOGITS_CHUNK * shape.vocabulary if load.is_fused else 0
    output_gradient = 0 if load.lora_rank else 4 * shape.vocabulary * shape.hidden
    context = _ONE_CONTEXT if load.is_apart else _CONTEXTS
    state: Parts = {"weights": weights, "AdamW": moments, "CUDA and vLLM's graphs": context}
    return {
        # verl copies the weights, in buckets, to send them to vLLM.
        "rollouts": state | {"copy of the weights": weights + _BUCKET},
        "update": state
        | {"gradients": gradients, "weights in bf16": in_bf16, "logits of a chunk": logits + output_gradient},
        "step": state | {"gradients": gradients, "AdamW's temporary copy": 4 * trained / load.gpus},
    }


def _vllm_bytes(shape: Shape, load: Load, card: Card, others: float) -> float:
    """Return as many bytes for vLLM as `others` leave, at most its share of the card and at least what it needs."""
    if load.vllm is not None:
        return load.vllm
    weights = 2 * shape.parameters / load.tensor_parallel
    working = 0.5 * GB + 8 * _VLLM_BATCH * shape.intermediate / load.tensor_parallel
    least = weights + working + _MIN_SEQUENCES * load.length * shape.cache_bytes / load.tensor_parallel
    return int(max(least, min(_VLLM_SHARE * card.free, card.usable - (0 if load.is_apart else others))))


def _passes(load: Load, room: float, each: tuple[float, float]) -> tuple[int, bool]:
    """Return the tokens of a pass in `room` bytes and whether it checkpoints; a token takes `each` without and with."""
    fitting = [load.tokens or min(max(_MOST_TOKENS, load.length), int(room / size)) for size in each]
    checkpointing = load.checkpointing
    if checkpointing is None:
        enough = load.tokens or max(load.length, _ENOUGH_TOKENS)
        checkpointing = room / each[False] < enough
    return max(fitting[checkpointing], load.length), checkpointing


def _fine_tuning(shape: Shape, load: Load, card: Card) -> tuple[Parts, int, bool]:
    """Return the bytes of supervised fine-tuning by part, the tokens of a pass, and whether it checkpoints."""
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
    least = min(load.length, _SFT_ENOUGH)
    checkpointing = room / each[False] < least
    tokens = max(least, min(SFT_TOKENS, int(room / each[checkpointing])))
    return parts | {"activations": each[checkpointing] * tokens}, tokens, checkpointing


def plan_memory(settings: Settings) -> MemoryPlan:
    """Plan the GPU memory of a run of the backend `verl`. Raises ConfigError when the memory of the GPU is unknown.

    A model of unknown sizes gets the smallest passes.
    """
    card, load = card_of(settings), _load_of(settings)
    if shape := Shape.of(config_of(settings.model) or {}):
        return reckon(shape, load, card)
    vllm = load.vllm if load.vllm is not None else _VLLM_SHARE * card.free
    checkpointing = True if load.checkpointing is None else load.checkpointing
    return MemoryPlan(card, load.tokens or load.length, checkpointing, _SFT_ENOUGH, True, vllm, {})


def refuse(settings: Settings, plan: MemoryPlan) -> None:
    """Raise ConfigError when `plan`, that of `settings`, does not fit into the memory of its GPU.

    The hint names the changes of which each by itself makes the run fit. A run whose `verl.config` moves parts of the
    training state elsewhere is not refused, because that is not reckoned.
    """
    offloads = any(_given(settings, f"actor.{name}") for name in ("strategy", "fsdp_config"))
    shape = Shape.of(config_of(settings.model) or {})
    if shape is None or plan.fits or offloads:
        return
    load = _load_of(settings)
    free = replace(load, tokens=None, checkpointing=None, vllm=None)
    changes = {
        "leave the tokens, checkpointing and vLLM's share out of verl.config": free,
        f"halve the {load.length} tokens of a rollout (verl.config.data)": replace(free, length=load.length // 2),
        "train adapters (--lora-rank 32)": replace(free, lora_rank=load.lora_rank or 32),
        f"use {2 * load.gpus} GPUs (--n-gpus)": replace(free, gpus=2 * load.gpus),
    }
    card = plan.card
    fitting = [advice for advice, changed in changes.items() if changed != load and reckon(shape, changed, card).fits]
    phase, needed = plan.worst
    part, size = max(plan.phases[phase].items(), key=lambda item: item[1])
    raise ConfigError(
        f"{settings.model} does not fit: {phase} needs {needed / GB:.1f} GB of each GPU, and {card.usable / GB:.1f} of "
        f"{card.free / GB:.1f} GB can be used; the largest part is {part}, {size / GB:.1f} GB",
        hint="; ".join(fitting) or "train a smaller model, or use a larger GPU",
    )


def smaller_passes(settings: Settings, options: Mapping[str, Any], card: Card) -> dict[str, Any]:
    """Return the settings with half of the tokens in a pass of `options` (see `verl_options`), and with checkpointing.

    They name the memory of `card`, because the processes that ran out of it may still hold it. Empty if `settings` give
    the tokens, as after an earlier halving, or if a pass can be no smaller.
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
    """Return the value of `verl.config.actor_rollout_ref.NAME`; None if it is not given."""
    value: Any = settings.verl.config.get("actor_rollout_ref", {})
    for key in name.split("."):
        value = value.get(key) if isinstance(value, dict) else None
    return typed(value)
