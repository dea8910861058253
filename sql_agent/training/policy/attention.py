"""Compute attention in packed sequences with PyTorch's variable-length kernel, for hosts without flash-attn.

verl packs the sequences of a batch into one row, in which no token may attend to another sequence. flash-attn supports
packed sequences but is hard to build. `torch.nn.attention.varlen` is the same kernel inside PyTorch. A row may also
contain a prefix that several sequences share (`packing.py`).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate, pairwise
from typing import Any

import torch
from torch.nn.functional import scaled_dot_product_attention
from transformers import AttentionInterface

from sql_agent.training.policy.packing import Packing

NAME = "torch_varlen"


@dataclass(frozen=True)
class _Bounds:
    """Where each segment of a packed row starts and ends, among the queries and among the keys.

    keys  the places in the row of all segments' keys; None where each segment attends to itself only
    """

    query_lengths: Sequence[int]
    key_lengths: Sequence[int]
    queries: torch.Tensor
    keys_end: torch.Tensor
    keys: torch.Tensor | None = None


def packed_attention(  # noqa: PLR0917  the signature is transformers'
    module: torch.nn.Module,
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    attention_mask: torch.Tensor | None,
    scaling: float | None = None,
    dropout: float = 0.0,
    position_ids: torch.Tensor | None = None,
    **_: Any,
) -> tuple[torch.Tensor, None]:
    """Compute causal attention inside each packed sequence; a sequence starts wherever `position_ids` is 0.

    `query` has the shape (1, heads, tokens, head size), `key` and `value` may have fewer heads, and `position_ids` has
    one element for each token. `share_prefixes` marks position ids whose sequences share prefixes. Returns the output
    (1, tokens, heads, head size), and None for the attention weights. Raises ValueError for a batch of several rows,
    for missing position ids, for positions that jump inside a sequence, and for dropout.
    """
    if query.shape[0] != 1 or position_ids is None:
        raise ValueError(f"{NAME} needs one packed row with position ids, not a batch of {query.shape[0]} rows")
    if dropout:
        raise ValueError(f"{NAME} does not support dropout")
    bounds = _bounds_of(position_ids)
    # The kernel reads (tokens, heads, head size).
    q, k, v = (tensor.squeeze(0).transpose(0, 1) for tensor in (query, key, value))
    if bounds.keys is not None:
        # The gradient of a shared key is a sum over many sequences, which bf16 would round at each addition.
        k, v = (tensor.float().index_select(0, bounds.keys).to(q.dtype) for tensor in (k, v))
    groups = q.shape[1] // k.shape[1]
    if groups > 1:
        k, v = k.repeat_interleave(groups, dim=1), v.repeat_interleave(groups, dim=1)
    attend = _varlen if q.is_cuda else _by_segment
    return attend(q, k, v, bounds, scaling).unsqueeze(0), None


def _varlen(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, bounds: _Bounds, scaling: float | None) -> torch.Tensor:
    from torch.nn.attention.varlen import varlen_attn  # noqa: PLC0415  PyTorch before 2.10 lacks it

    if torch.is_autocast_enabled("cuda"):  # the rotary embedding of fp32 weights gives fp32
        q, k, v = (each.to(torch.get_autocast_dtype("cuda")) for each in (q, k, v))
    # With fewer queries than keys, the last query is aligned with the last key.
    out: torch.Tensor = varlen_attn(
        q.contiguous(),
        k.contiguous(),
        v.contiguous(),
        bounds.queries,
        bounds.keys_end,
        max(bounds.query_lengths),
        max(bounds.key_lengths),
        scale=scaling,
        window_size=(-1, 0),
    )
    return out


def _by_segment(
    q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, bounds: _Bounds, scaling: float | None
) -> torch.Tensor:
    """Compute the attention segment by segment, for devices without the kernel."""
    outputs = []
    ends = (pairwise((0, *accumulate(lengths))) for lengths in (bounds.query_lengths, bounds.key_lengths))
    for (start, end), (first, last) in zip(*ends, strict=True):
        queries, keys = end - start, last - first
        mask = torch.ones(queries, keys, dtype=torch.bool, device=q.device).tril(keys - queries)
        own, read, values = (each.transpose(0, 1) for each in (q[start:end], k[first:last], v[first:last]))
        outputs.append(scaled_dot_product_attention(own, read, values, mask, scale=scaling).transpose(0, 1))
    return torch.cat(outputs)


def share_prefixes(position_ids: torch.Tensor, packing: Packing) -> None:
    """Mark the `position_ids` (1, packed tokens) of a packed row whose sequences share prefixes."""
    position_ids._bounds = _bounds(packing.query_lengths, packing.key_lengths, position_ids, packing.keys)


def _bounds_of(position_ids: torch.Tensor) -> _Bounds:
    """Return the bounds, which are cached as an attribute of `position_ids`: all layers get the same tensor."""
    known: _Bounds | None = getattr(position_ids, "_bounds", None)
    if known is None:
        row = position_ids.reshape(-1)
        starts = (row == 0).nonzero().flatten().tolist()
        if bool(((row.diff() != 1) & (row[1:] != 0)).any()):  # a shared prefix whose mark was lost
            raise ValueError(f"the positions of a row for {NAME} jump inside a sequence")
        lengths = [end - start for start, end in pairwise((*starts, row.numel()))]
        known = _bounds(lengths, lengths, position_ids, None)
        position_ids._bounds = known
    return known


def _bounds(
    query_lengths: Sequence[int], key_lengths: Sequence[int], like: torch.Tensor, keys: torch.Tensor | None
) -> _Bounds:
    def ends(lengths: Sequence[int]) -> torch.Tensor:
        return torch.tensor([0, *accumulate(lengths)], dtype=torch.int32, device=like.device)

    on_device = keys if keys is None else keys.to(like.device)
    return _Bounds(query_lengths, key_lengths, ends(query_lengths), ends(key_lengths), on_device)


def register() -> None:
    """Register `attn_implementation="torch_varlen"` with transformers in this process."""
    AttentionInterface.register(NAME, packed_attention)
