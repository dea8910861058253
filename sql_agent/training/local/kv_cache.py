"""Cache attention keys and values of the common prefix of a batch, of each row, and of finished turns."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor
from transformers import AttentionInterface, AttentionMaskInterface, DynamicCache
from transformers.cache_utils import DynamicLayer
from transformers.integrations.sdpa_attention import sdpa_attention_forward
from transformers.masking_utils import sdpa_mask

ATTENTION = "shared_prefix"
SHARING = {"llama", "qwen2", "qwen3"}  # model types whose attention `attend` can compute
_BLOCK = 128  # a buffer's number of columns is a multiple of this
_MAX_TURN_TOKENS = 1 << 14  # maximum number of tokens of all finished turns: 0.4 GB for SmolLM2 in bf16

Layers = Sequence[tuple[Tensor, Tensor]]  # keys and values of each layer (key heads, tokens, head size)


def attend(
    module: Any,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attention_mask: Tensor | None,
    *,
    prefix: Layers | None = None,
    **options: Any,
) -> tuple[Tensor, None]:
    """Compute attention as transformers' "sdpa" does; each row also attends to the shared `prefix`, if there is one.

    `query` has the shape (rows, heads, tokens, head size); `key` and `value` may have fewer heads. With a prefix,
    `attention_mask` (rows, 1, tokens, prefix + keys) is true where a token may attend. One matrix product multiplies
    the queries of all rows by the keys of the prefix: with a copy of the prefix for each row, most of the time would go
    into reading the copies. Returns the output (rows, tokens, heads, head size), and None for the attention weights.
    """
    if prefix is None or attention_mask is None:
        result: tuple[Tensor, None] = sdpa_attention_forward(module, query, key, value, attention_mask, **options)
        return result
    rows, heads, tokens, size = query.shape
    kv_heads = key.shape[1]
    keys, values = prefix[module.layer_idx]
    grouped = query.reshape(rows, kv_heads, -1, size)  # the queries of the heads that share a key head
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


class TurnCache:
    """Keys and values of finished turns, for the next turn of the same conversation; at most 16,384 tokens.

    The turns that were added first are removed first.
    """

    def __init__(self) -> None:
        self._turns: OrderedDict[tuple[int, ...], Layers] = OrderedDict()
        self._tokens = 0

    def add(self, ids: tuple[int, ...], layers: Layers) -> None:
        """Add `layers`, the keys and values of the conversation `ids` without those of the shared prefix."""
        if ids in self._turns:
            return
        self._turns[ids] = layers
        self._tokens += token_count(layers)
        while self._tokens > _MAX_TURN_TOKENS:
            _, dropped = self._turns.popitem(last=False)
            self._tokens -= token_count(dropped)

    def longest_start(self, prompt: tuple[int, ...]) -> Layers | None:
        """Return the keys and values of the longest cached conversation that `prompt` continues, or None."""
        lengths = sorted({len(ids) for ids in self._turns if len(ids) < len(prompt)}, reverse=True)
        return next((self._turns[prompt[:n]] for n in lengths if prompt[:n] in self._turns), None)

    def clear(self) -> None:
        self._turns.clear()
        self._tokens = 0


class RowCache:
    """Key-value cache of a batch without left padding; `lengths` has the number of cached tokens of each row.

    The DynamicCache of transformers copies all keys and values for each new token and each added or removed row, which
    took most of the time with 64 rows. This cache writes new tokens in place, and moves the last row to the index of a
    removed row. The shared `prefix` is stored once, precedes column 0 of each row that was added with `has_prefix`, and
    is not counted in `lengths`.
    """

    def __init__(self, layers: int, prefix: Layers | None = None) -> None:
        self.prefix = prefix
        self.lengths: list[int] = []
        self._has_prefix: list[bool] = []
        self._cache = DynamicCache()
        self._cache.layers = [_RowLayer() for _ in range(layers)]

    def add(self, start: Layers | None, *, has_prefix: bool) -> None:
        """Append a row with the keys and values `start`; if `has_prefix`, the shared prefix precedes the row."""
        row, length = len(self.lengths), token_count(start)
        self.lengths.append(length)
        self._has_prefix.append(has_prefix)
        longest = max(self.lengths)
        for layer, (keys, values) in zip(self._cache.layers, start or (), strict=False):
            layer.reserve(row + 1, longest, keys[None])
            layer.keys[row, :, :length], layer.values[row, :, :length] = keys, values

    def copy_of(self, row: int) -> Layers | None:
        """Return a copy of the keys and values of `row`, or None if the cache has a prefix that `row` lacks."""
        if self._has_prefix[row] != (self.prefix is not None):
            return None
        length = self.lengths[row]
        return [
            (layer.keys[row, :, :length].clone(), layer.values[row, :, :length].clone()) for layer in self._cache.layers
        ]

    def remove(self, row: int) -> None:
        """Remove `row`, and move the last row to its index."""
        last = len(self.lengths) - 1
        length = self.lengths[row] = self.lengths[last]
        self._has_prefix[row] = self._has_prefix[last]
        self.lengths.pop()
        self._has_prefix.pop()
        if row != last:
            for layer in self._cache.layers:
                layer.keys[row, :, :length] = layer.keys[last, :, :length]
                layer.values[row, :, :length] = layer.values[last, :, :length]

    def extend(self, first: int, new: Sequence[int]) -> dict[str, Any]:
        """Make room for new tokens in the rows from `first` on; return the arguments for the model's forward pass.

        `new` has the number of new tokens of each row. The rows are padded on the right, where causal attention lets no
        real token attend to the padding. Later tokens overwrite the padding's keys and values.
        """
        columns = torch.tensor(self.lengths[first:])[:, None] + torch.arange(max(new))
        self.lengths[first:] = [length + more for length, more in zip(self.lengths[first:], new, strict=True)]
        width = int(columns.max()) + 1
        longest = max(width, *self.lengths)
        for layer in self._cache.layers:
            layer.first, layer.columns, layer.width, layer.longest = first, columns, width, longest
        has_prefix = torch.tensor(self._has_prefix[first:])[:, None]
        common = token_count(self.prefix)
        of_prefix = has_prefix[:, :, None].expand(*columns.shape, common)
        visible = torch.arange(width) <= columns[:, :, None]
        return {
            "attention_mask": torch.cat([of_prefix, visible], dim=-1)[:, None],
            "position_ids": columns + common * has_prefix,
            "past_key_values": self._cache,
            "use_cache": True,
        } | ({"prefix": self.prefix} if self.prefix else {})


def token_count(layers: Layers | None) -> int:
    return 0 if layers is None else layers[0][0].shape[1]


class _RowLayer(DynamicLayer):  # type: ignore[misc]
    """The buffers of one layer (rows, heads, columns, head size); `update` writes to the rows from `first` on.

    `columns` (rows, tokens) are the columns of the new tokens, `width` is the number of columns that are read, and
    `longest` the number that any row needs.
    """

    keys: Any  # a Tensor, or None before `reserve`
    values: Any
    first: int
    columns: Tensor
    width: int
    longest: int

    def reserve(self, rows: int, columns: int, like: Tensor) -> None:
        """Make room for all `rows` rows and `columns` columns that are in use; heads and dtype are those of `like`."""
        columns = -(-columns // _BLOCK) * _BLOCK
        self.keys, self.values = _grown(self.keys, rows, columns, like), _grown(self.values, rows, columns, like)
        self.is_initialized = True

    def update(self, key_states: Tensor, value_states: Tensor, *_args: Any, **_kwargs: Any) -> tuple[Tensor, Tensor]:
        """Write the new tokens, and return the keys and values (rows, heads, width, head size) of their rows."""
        end = self.first + len(key_states)
        self.reserve(end, self.longest, key_states)
        rows = torch.arange(self.first, end)[:, None]
        self.keys[rows, :, self.columns] = key_states.transpose(1, 2)
        self.values[rows, :, self.columns] = value_states.transpose(1, 2)
        return self.keys[self.first : end, :, : self.width], self.values[self.first : end, :, : self.width]


def _grown(buffer: Tensor | None, rows: int, columns: int, like: Tensor) -> Tensor:
    """Return `buffer` if it is large enough, else a copy of just `rows` rows and `columns` columns.

    With all earlier rows, a copy for one of the last rows, a long one, took 1.3 GB.
    """
    if buffer is not None and rows <= buffer.shape[0] and columns <= buffer.shape[2]:
        return buffer
    # Filled with zeros, because masked columns have the weight 0, and 0 times an uninitialised value can be NaN.
    grown = like.new_zeros(rows, like.shape[1], columns, like.shape[3])
    if buffer is not None:
        kept = buffer[:rows, :, :columns]
        grown[: kept.shape[0], :, : kept.shape[2]] = kept
    return grown
