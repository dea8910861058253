"""Attention in which all rows of a batch read one copy of the keys and values of their common prefix."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from transformers import AttentionInterface, AttentionMaskInterface
from transformers.integrations.sdpa_attention import sdpa_attention_forward
from transformers.masking_utils import sdpa_mask

ATTENTION = "shared_prefix"
SHARING = {"llama", "qwen2", "qwen3"}  # model types whose whole attention is what `attend` computes

Layers = Sequence[tuple[torch.Tensor, torch.Tensor]]  # keys and values of each layer, (key heads, tokens, dimension)


def attend(
    module: Any,
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    attention_mask: torch.Tensor | None,
    *,
    prefix: Layers | None = None,
    **options: Any,
) -> tuple[torch.Tensor, None]:
    """Compute attention as "sdpa" does; a `prefix`, where there is one, comes before each row's `key`.

    `query` is (rows, heads, tokens, dimension), `key` and `value` have fewer heads in a model with grouped queries.
    With a prefix, `attention_mask` (rows, 1, tokens, prefix + keys) is true where a token may attend. The queries of
    all rows are multiplied by the one prefix as a matrix, because a copy of it for each row is most of what a token
    reads from memory.
    """
    if prefix is None or attention_mask is None:
        result: tuple[torch.Tensor, None] = sdpa_attention_forward(module, query, key, value, attention_mask, **options)
        return result
    rows, heads, tokens, size = query.shape
    kv_heads = key.shape[1]
    keys, values = prefix[module.layer_idx]
    grouped = query.reshape(rows, kv_heads, -1, size)  # the queries of the heads that share keys
    together = grouped.transpose(0, 1).reshape(kv_heads, -1, size)
    common = (together @ keys.mT).view(kv_heads, rows, -1, keys.shape[1]).transpose(0, 1)
    scores = torch.cat([common, grouped @ key.mT], dim=-1).view(rows, kv_heads, heads // kv_heads, tokens, -1)
    scores = (scores * module.scaling).masked_fill(~attention_mask[:, :, None], torch.finfo(scores.dtype).min)
    weights = scores.softmax(-1, dtype=torch.float32).to(value.dtype).view(rows, kv_heads, -1, scores.shape[-1])
    of_prefix, of_row = weights.split([keys.shape[1], key.shape[2]], dim=-1)
    read = (of_prefix.transpose(0, 1).reshape(kv_heads, -1, keys.shape[1]) @ values).view(kv_heads, rows, -1, size)
    out = read.transpose(0, 1) + of_row @ value
    return out.reshape(rows, heads, tokens, size).transpose(1, 2), None


AttentionInterface.register(ATTENTION, attend)
AttentionMaskInterface.register(ATTENTION, sdpa_mask)
