"""Compute attention in packed sequences with PyTorch's variable-length kernel, for hosts without flash-attn.

verl packs the sequences of a batch into one row, in which no token may attend to another sequence. flash-attn supports
packed sequences but is hard to build. `torch.nn.attention.varlen` is the same kernel inside PyTorch.
"""

from __future__ import annotations

from typing import Any

import torch
from torch.nn.attention.varlen import varlen_attn
from transformers import AttentionInterface

NAME = "torch_varlen"


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
    one element for each token. Returns the output (1, tokens, heads, head size), and None for the attention weights.
    Raises ValueError for a batch of several rows, for missing position ids, and for dropout.
    """
    if query.shape[0] != 1 or position_ids is None:
        raise ValueError(f"{NAME} needs one packed row with position ids, not a batch of {query.shape[0]} rows")
    if dropout:
        raise ValueError(f"{NAME} does not support dropout")
    bounds, longest = _bounds(position_ids)
    # The kernel reads (tokens, heads, head size).
    q, k, v = (tensor.squeeze(0).transpose(0, 1).contiguous() for tensor in (query, key, value))
    groups = q.shape[1] // k.shape[1]
    if groups > 1:
        k, v = k.repeat_interleave(groups, dim=1), v.repeat_interleave(groups, dim=1)
    out = varlen_attn(q, k, v, bounds, bounds, longest, longest, scale=scaling, window_size=(-1, 0))
    return out.unsqueeze(0), None


def _bounds(position_ids: torch.Tensor) -> tuple[torch.Tensor, int]:
    """Return the start of each sequence and the end of the last one (int32), and the length of the longest sequence.

    The result is cached as an attribute of `position_ids`, because all layers get the same tensor.
    """
    known: tuple[torch.Tensor, int] | None = getattr(position_ids, "_sequence_bounds", None)
    if known is None:
        row = position_ids.reshape(-1)
        starts = (row == 0).nonzero().flatten()
        bounds = torch.cat([starts, starts.new_tensor([row.numel()])]).to(torch.int32)
        known = bounds, int(bounds.diff().max())
        position_ids._sequence_bounds = known
    return known


def register() -> None:
    """Register `attn_implementation="torch_varlen"` with transformers in this process."""
    AttentionInterface.register(NAME, packed_attention)
