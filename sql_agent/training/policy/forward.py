"""Compute token log-probabilities, with one pass for the prefix that a batch shares, and clip gradients."""

from __future__ import annotations

import copy
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional
from torch.utils.checkpoint import checkpoint
from transformers import DynamicCache
from transformers.cache_utils import DynamicLayer

from sql_agent.errors import TrainingError
from sql_agent.rollouts.trajectory import TokenSequence
from sql_agent.training.policy.attention import NAME as PACKED
from sql_agent.training.policy.attention import Packing, pack, share_prefixes

_MIN_SHARED = 16  # minimum number of tokens; a second forward pass for a shorter prefix does not pay
_MAX_GRAD_NORM = 1.0


def common_prefix(prompts: Sequence[tuple[int, ...]]) -> int:
    """Return the number of leading tokens that all `prompts` share, at most one less than the shortest prompt has."""
    first, last = min(prompts), max(prompts)
    limit = min(len(p) for p in prompts) - 1
    length = next((i for i, (a, b) in enumerate(zip(first, last, strict=False)) if a != b), limit)
    return min(length, limit)


def prefix_cache(model: Any, prefix: Sequence[int]) -> DynamicCache | None:
    """Return the key-value cache (one row) of the token ids `prefix`, or None if a layer of `model` needs another one.

    For a backward pass, a layer keeps only its input, because the activations of a prompt of 800 tokens take 0.7 GB.
    """
    cache, first = DynamicCache(config=model.config), DynamicCache()
    if any(type(layer) is not DynamicLayer for layer in cache.layers):
        return None
    first.layers = [_FirstPass() for _ in cache.layers]
    with _checkpointed(getattr(model.model, "layers", ())):
        model.model(input_ids=torch.tensor([list(prefix)], device=model.device), past_key_values=first, use_cache=True)
    for number, layer in enumerate(first.layers):
        cache.update(layer.keys, layer.values, number)
    return cache


class _FirstPass(DynamicLayer):  # type: ignore[misc]
    """Keeps the keys and values of a layer's first pass; the backward pass runs the layer again."""

    def update(self, keys: Tensor, values: Tensor, *_args: Any, **_kwargs: Any) -> tuple[Tensor, Tensor]:
        if not self.is_initialized:
            self.lazy_initialization(keys, values)
            self.keys, self.values = keys, values
        return keys, values


@contextmanager
def _checkpointed(layers: Iterable[Any]) -> Iterator[None]:
    """Inside the context, `layers` keep no activations; they run again in the backward pass."""
    for layer in layers:
        layer.forward = partial(checkpoint, layer.forward, use_reentrant=False)
    try:
        yield
    finally:
        for layer in layers:
            del layer.forward


class SharedPrefix:
    """The keys and values of the `tokens` with which all sequences of a batch begin, computed once for the batch.

    `token_logprobs` reads them for each micro-batch. A micro-batch's backward pass adds to the gradients of the keys
    and values only, in fp32, because bf16 would round each addition. After the last micro-batch, `backward` adds the
    gradients of the weights.
    """

    def __init__(self, cache: DynamicCache, tokens: int) -> None:
        self.tokens = tokens
        self._cache = cache
        self._computed = [tensor for layer in cache.layers for tensor in (layer.keys, layer.values)]
        self._read = [each.detach().float().requires_grad_(each.requires_grad) for each in self._computed]

    @classmethod
    def of(cls, model: Any, batch: Sequence[TokenSequence], *, bf16: bool) -> SharedPrefix | None:
        """Compute the prefix that the prompts of `batch` share; return None if sharing it does not pay.

        A model with the attention `torch_varlen` needs none, because a packed row has each shared prefix once.
        """
        if len(batch) < 2 or model.config._attn_implementation == PACKED:
            return None
        prompts = [sequence.prompt_ids for sequence in batch]
        shared = common_prefix(prompts)
        if shared < _MIN_SHARED:
            return None
        with torch.autocast(model.device.type, dtype=torch.bfloat16, enabled=bf16):
            cache = prefix_cache(model, prompts[0][:shared])
        return None if cache is None else cls(cache, shared)

    def cache(self, rows: int) -> DynamicCache:
        """Return a cache with `rows` rows, all of them views of the prefix."""
        cache = copy.copy(self._cache)
        cache.layers = [copy.copy(layer) for layer in self._cache.layers]
        rows_of = [r.to(c.dtype).expand(rows, -1, -1, -1) for r, c in zip(self._read, self._computed, strict=True)]
        for layer, keys, values in zip(cache.layers, rows_of[::2], rows_of[1::2], strict=True):
            layer.keys, layer.values = keys, values
        return cache

    def backward(self) -> None:
        """Add the prefix's part of the weights' gradients; call after the backward passes of all micro-batches."""
        pairs = [(computed, read.grad) for computed, read in zip(self._computed, self._read, strict=True)]
        used = [(computed, grad.to(computed.dtype)) for computed, grad in pairs if grad is not None]
        torch.autograd.backward([computed for computed, _ in used], [grad for _, grad in used])


def token_logprobs(
    model: Any,
    batch: Sequence[TokenSequence],
    *,
    bf16: bool,
    temperature: float = 1.0,
    prefix: SharedPrefix | None = None,
) -> tuple[Tensor, Tensor]:
    """Compute the log-probabilities (nats) of the sampled tokens of `batch` under `model` at `temperature`.

    Returns two fp32 tensors of shape (rows, longest response): the log-probabilities, and the mask, which is 1.0 on
    sampled tokens and 0.0 on tool output and padding. Where the mask is 0.0, the log-probability is 0.0 too. With
    `bf16` the forward pass runs under bf16 autocast. A model with the attention `torch_varlen` gets the batch as one
    packed row, any other model as padded rows, which begin after `prefix` if it is given.
    """
    rows = len(batch)
    width = max(len(s.response_ids) for s in batch)
    targets, mask = torch.zeros(rows, width, dtype=torch.long), torch.zeros(rows, width)  # filled on the CPU
    for row, s in enumerate(batch):
        targets[row, : len(s.response_ids)] = torch.tensor(s.response_ids)
        mask[row, : len(s.response_ids)] = torch.tensor(s.response_mask, dtype=torch.float32)
    chosen = mask.bool()
    labels = targets[chosen].to(model.device)
    packed = model.config._attn_implementation == PACKED
    with torch.autocast(model.device.type, dtype=torch.bfloat16, enabled=bf16):
        states, predicting = _packed_states(model, batch) if packed else _padded_states(model, batch, prefix)
        # The large output layer runs only on positions that predict a sampled token.
        before = torch.nn.utils.rnn.pad_sequence(predicting, batch_first=True)[chosen]
        logits = model.lm_head(states[before.to(model.device)])
    values = -functional.cross_entropy(logits.float().div_(temperature), labels, reduction="none")
    mask, chosen = mask.to(model.device), chosen.to(model.device)
    return torch.zeros_like(mask).masked_scatter(chosen, values), mask


def _packed_states(model: Any, batch: Sequence[TokenSequence]) -> tuple[Tensor, list[Tensor]]:
    """Return the hidden states (tokens, width) of a packed row, and which of these states predict each response."""
    sequences = [s.prompt_ids + s.response_ids for s in batch]
    states, packing = packed_states(model.model, sequences)
    places = packing.places.split([len(s) for s in sequences])
    return states, [of_one[len(s.prompt_ids) - 1 : -1] for of_one, s in zip(places, batch, strict=True)]


def packed_states(backbone: Any, sequences: Sequence[Sequence[int]]) -> tuple[Tensor, Packing]:
    """Run `sequences` of token ids as one packed row through `backbone`, a model without its output layer.

    The attention of `backbone` must be `torch_varlen`. Returns hidden states (packed tokens, width) and the packing.
    """
    packing = pack(sequences)
    ids = torch.tensor([token for s in sequences for token in s])[packing.kept]
    positions = torch.cat([torch.arange(len(s)) for s in sequences])[packing.kept]
    row = positions.to(backbone.device)[None]
    share_prefixes(row, packing)
    states = backbone(input_ids=ids.to(backbone.device)[None], position_ids=row, use_cache=False).last_hidden_state
    return states.squeeze(0), packing


def _padded_states(
    model: Any, batch: Sequence[TokenSequence], prefix: SharedPrefix | None
) -> tuple[Tensor, list[Tensor]]:
    """Do the same as `_packed_states` with padded rows, which begin after `prefix`."""
    shared = prefix.tokens if prefix else 0
    tails = [(s.prompt_ids + s.response_ids)[shared:] for s in batch]
    longest = max(map(len, tails))
    # No mask is needed, because with causal attention no real token attends to the padding on its right.
    ids = torch.tensor([list(t) + [0] * (longest - len(t)) for t in tails], device=model.device)
    if prefix is None:
        hidden = model.model(input_ids=ids, use_cache=False).last_hidden_state
    else:
        positions = torch.arange(shared, shared + longest, device=model.device)[None].expand(len(batch), -1)
        hidden = model.model(
            input_ids=ids, past_key_values=prefix.cache(len(batch)), position_ids=positions, use_cache=True
        ).last_hidden_state
    firsts = (row * longest + len(s.prompt_ids) - shared - 1 for row, s in enumerate(batch))
    predicting = [torch.arange(first, first + len(s.response_ids)) for first, s in zip(firsts, batch, strict=True)]
    return hidden.flatten(0, 1), predicting


def clip_gradient(parameters: Iterable[Tensor], *, where: str, hint: str) -> float:
    """Clip the gradient of `parameters` to the L2 norm 1, and return the norm before clipping.

    Raises TrainingError when the gradient is not finite, because an optimizer step would then make all weights NaN.
    """
    norm = torch.nn.utils.clip_grad_norm_(parameters, _MAX_GRAD_NORM)
    if not norm.isfinite():
        raise TrainingError(f"the gradient of {where} is not finite", hint=hint)
    return float(norm)
