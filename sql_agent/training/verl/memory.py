"""Reckon the memory of a GPU in each phase of a run of verl, and choose how much to compute at once.

Sources: verl 0.9 trains with FSDP1 in fp32 and computes in bf16; its fused kernel computes logits in chunks of 512
tokens; AdamW keeps two fp32 moments. The bytes of a layer were counted on Qwen2 (tests/training/policy/test_shape.py),
and the constants below were fitted to the peaks in docs/lab/2026-11-21.md.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from sql_agent.training.policy.shape import Shape

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

Parts = dict[str, float]


@dataclass(frozen=True)
class Card:
    """A GPU: its `total` and `free` bytes."""

    total: float
    free: float

    @property
    def usable(self) -> float:
        return _USABLE * self.free


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

    tokens             in one forward and backward pass of GRPO
    checkpointing      whether GRPO computes activations again instead of keeping them
    sft_tokens         in one pass of supervised fine-tuning
    sft_checkpointing  the same for supervised fine-tuning
    vllm               vLLM's bytes
    phases             {phase: {part: bytes}}; empty if the model's sizes are unknown
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
        """The phase that needs the most memory, and its bytes."""
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
    """Return vLLM's bytes beside those of `others`: as many as are left, within its share and what it needs."""
    if load.vllm is not None:
        return load.vllm
    weights = 2 * shape.parameters / load.tensor_parallel
    working = 0.5 * GB + 8 * _VLLM_BATCH * shape.intermediate / load.tensor_parallel
    least = weights + working + _MIN_SEQUENCES * load.length * shape.cache_bytes / load.tensor_parallel
    return int(max(least, min(_VLLM_SHARE * card.free, card.usable - (0 if load.is_apart else others))))


def _passes(load: Load, room: float, each: tuple[float, float]) -> tuple[int, bool]:
    """Return the tokens of a pass in `room` bytes and whether activations are computed again.

    `each` are the bytes of a token without and with checkpointing.
    """
    most = max(_MOST_TOKENS, load.length)
    fitting = [load.tokens or min(most, int(room / size)) for size in each]
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


def unknown_sizes(card: Card, load: Load) -> MemoryPlan:
    """Return the plan for a model of unknown sizes: the smallest passes."""
    vllm = load.vllm if load.vllm is not None else _VLLM_SHARE * card.free
    checkpointing = True if load.checkpointing is None else load.checkpointing
    return MemoryPlan(card, load.tokens or load.length, checkpointing, _SFT_ENOUGH, True, vllm, {})
