"""Cache attention keys and values of the common prefix of a batch, of each row, and of finished turns."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Sequence
from typing import Any

import torch
from transformers import AttentionInterface, AttentionMaskInterface, DynamicCache
from transformers.cache_utils import DynamicLayer
from transformers.integrations.sdpa_attention import sdpa_attention_forward
from transformers.masking_utils import sdpa_mask

ATTENTION = "shared_prefix"
SHARING = {"llama", "qwen2", "qwen3"}  # model types whose attention needs nothing that `attend` lacks
_BLOCK = 128  # a buffer's number of columns is a multiple of this
_MAX_TURN_TOKENS = 1 << 14  # maximum number of tokens of all finished turns: 0.4 GB for SmolLM2 in bf16

Layers = Sequence[tuple[torch.Tensor, torch.Tensor]]  # keys and values of each layer (key heads, tokens, head size)


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
    """Compute attention as transformers' "sdpa" does; each row also attends to the shared `prefix`, if there is one.

    `query` has the shape (rows, heads, tokens, head size). `key` and `value` have fewer heads in a model with
    grouped-query attention. With a prefix, `attention_mask` (rows, 1, tokens, prefix + keys) is true where a token may
    attend. One matrix product multiplies the queries of all rows by the keys of the prefix. Reading a copy of the
    prefix for each row would take most of the time for a token.

    Returns the output (rows, tokens, heads, head size), and None for the attention weights.
    """
    if prefix is None or attention_mask is None:
        result: tuple[torch.Tensor, None] = sdpa_attention_forward(module, query, key, value, attention_mask, **options)
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
    """Keys and values of finished turns, to be reused in the next turn of the same conversation.

    The oldest turns are removed when the cache has more than 16,384 tokens.
    """

    def __init__(self) -> None:
        self._turns: OrderedDict[tuple[int, ...], Layers] = OrderedDict()
        self._tokens = 0

    def add(self, ids: tuple[int, ...], layers: Layers) -> None:
        """Add the keys and values `layers` of a conversation `ids`; those of the shared prefix are not in `layers`."""
        if ids in self._turns:
            return
        self._turns[ids] = layers
        self._tokens += token_count(layers)
        while self._tokens > _MAX_TURN_TOKENS:
            _, dropped = self._turns.popitem(last=False)
            self._tokens -= token_count(dropped)

    def longest_start(self, prompt: tuple[int, ...]) -> Layers | None:
        """Return the keys and values of the longest cached turn that `prompt` begins with; None if there is none.

        `prompt` must be at least one token longer than the turn, because the model must run a token to continue.
        """
        lengths = sorted({len(ids) for ids in self._turns if len(ids) < len(prompt)}, reverse=True)
        return next((self._turns[prompt[:n]] for n in lengths if prompt[:n] in self._turns), None)

    def clear(self) -> None:
        self._turns.clear()
        self._tokens = 0


class RowCache:
    """Key-value cache of a batch without left padding; `lengths` has the number of cached tokens of each row.

    The DynamicCache of transformers copies all keys and values for each new token, and pads and copies all rows
    whenever a row is added or removed. With 64 rows these copies took most of the time. This cache writes a new token
    in place, and moves the last row to the index of a removed row. Column 0 of a row follows the shared `prefix`, which
    is stored once and is not counted in `lengths`. A row can also begin without the prefix.
    """

    def __init__(self, prefix: Layers | None = None) -> None:
        self.prefix = prefix
        self.lengths: list[int] = []
        self._has_prefix: list[bool] = []
        self._cache: Any = None

    def add(self, prefilled: Any, spans: Sequence[Sequence[tuple[int, int]]], *, has_prefix: bool) -> None:
        """Append the rows of the DynamicCache `prefilled` without their padding.

        The ranges of columns `spans[i]`, pairs (start, end), are the tokens of row i. `has_prefix` says whether the
        shared prefix comes before these rows.
        """
        first = len(self.lengths)
        self.lengths += [sum(end - start for start, end in row) for row in spans]
        self._has_prefix += [has_prefix] * len(spans)
        self._reserve(prefilled, max(self.lengths[first:]))
        for layer, source in zip(self._cache.layers, prefilled.layers, strict=True):
            for index, row in enumerate(spans):
                column = 0
                for start, end in row:
                    place = slice(column, column + end - start)
                    layer.keys[first + index, :, place] = source.keys[index, :, start:end]
                    layer.values[first + index, :, place] = source.values[index, :, start:end]
                    column = place.stop

    def copy_of(self, row: int) -> Layers | None:
        """Return a copy of the keys and values of `row` after the prefix; None for a row that lacks the prefix."""
        if self._has_prefix[row] != (self.prefix is not None):
            return None
        length = self.lengths[row]
        return [
            (layer.keys[row, :, :length].clone(), layer.values[row, :, :length].clone()) for layer in self._cache.layers
        ]

    def remove(self, row: int) -> None:
        """Remove the row with the index `row`, and move the last row to this index."""
        last = len(self.lengths) - 1
        length = self.lengths[row] = self.lengths[last]
        self._has_prefix[row] = self._has_prefix[last]
        self.lengths.pop()
        self._has_prefix.pop()
        if row != last:
            for layer in self._cache.layers:
                layer.keys[row, :, :length] = layer.keys[last, :, :length]
                layer.values[row, :, :length] = layer.values[last, :, :length]

    def extend(self) -> dict[str, Any]:
        """Make room for one more token in each row; return the model's arguments for a forward pass on these tokens."""
        columns = torch.tensor(self.lengths)
        self.lengths = [length + 1 for length in self.lengths]
        self._reserve(self._cache, max(self.lengths))
        width = max(self.lengths)
        for layer in self._cache.layers:
            layer.columns, layer.width = columns, width
        visible = torch.arange(width) <= columns[:, None, None]
        return pass_arguments(self._cache, self.prefix, torch.tensor(self._has_prefix), columns[:, None], visible)

    def _reserve(self, like: Any, columns: int) -> None:
        """Enlarge the buffers to all rows and at least `columns` columns, with heads and dtype as in `like`."""
        rows, columns = len(self.lengths), -(-columns // _BLOCK) * _BLOCK
        if self._cache is None:
            self._cache = DynamicCache()
            self._cache.layers = [_RowLayer() for _ in like.layers]
        for layer, source in zip(self._cache.layers, like.layers, strict=True):
            layer.reserve(rows, columns, source.keys)


def token_count(layers: Layers | None) -> int:
    """Return the number of tokens in `layers`; 0 for None."""
    return 0 if layers is None else layers[0][0].shape[1]


def padded_cache(starts: Sequence[Layers | None]) -> tuple[Any, torch.Tensor]:
    """Return a DynamicCache with a row for each of `starts`, padded on the right, and the length of each row.

    A row is empty where `starts` has None.
    """
    lengths = torch.tensor(list(map(token_count, starts)))
    cache = DynamicCache()
    known = next((start for start in starts if start is not None), None)
    for number, (like, _) in enumerate(known or ()):
        shape = (len(starts), like.shape[0], int(lengths.max()), like.shape[2])
        keys, values = like.new_zeros(shape), like.new_zeros(shape)
        for row, start in enumerate(starts):
            if start is not None:
                keys[row, :, : lengths[row]], values[row, :, : lengths[row]] = start[number]
        cache.update(keys, values, number)
    return cache, lengths


def pass_arguments(
    cache: Any, prefix: Layers | None, has_prefix: torch.Tensor, columns: torch.Tensor, visible: torch.Tensor
) -> dict[str, Any]:
    """Return the model's arguments for a forward pass on new tokens at the `columns` (rows, tokens) of their rows.

    `has_prefix` (rows,) is true for rows that begin with `prefix`. `cache` has the earlier tokens after the prefix.
    `visible` (rows, tokens, cached and new columns) is true where a token may attend.
    """
    common = prefix[0][0].shape[1] if prefix else 0
    of_prefix = has_prefix[:, None, None].expand(*columns.shape, common)
    return {
        "attention_mask": torch.cat([of_prefix, visible], dim=-1)[:, None],
        "position_ids": columns + common * has_prefix[:, None],
        "past_key_values": cache,
        "use_cache": True,
    } | ({"prefix": prefix} if prefix else {})


class _RowLayer(DynamicLayer):  # type: ignore[misc]
    """One layer's buffers (rows, heads, columns, head size); `update` writes one new token of each row.

    `columns` (rows,) are the columns of the new tokens, and `width` is the number of used columns.
    """

    keys: torch.Tensor | None
    values: torch.Tensor | None
    columns: torch.Tensor
    width: int

    def reserve(self, rows: int, columns: int, like: torch.Tensor) -> None:
        self.keys = _grown(self.keys, rows, columns, like)
        self.values = _grown(self.values, rows, columns, like)
        self.is_initialized = True

    def update(
        self, key_states: torch.Tensor, value_states: torch.Tensor, *_args: Any, **_kwargs: Any
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Write one token of each row, and return the keys and values (rows, heads, width, head size) of all rows."""
        if self.keys is None or self.values is None:
            raise RuntimeError("call reserve before update")
        rows = torch.arange(len(key_states))
        self.keys[rows, :, self.columns] = key_states[:, :, 0]
        self.values[rows, :, self.columns] = value_states[:, :, 0]
        return self.keys[: len(rows), :, : self.width], self.values[: len(rows), :, : self.width]


def _grown(buffer: torch.Tensor | None, rows: int, columns: int, like: torch.Tensor) -> torch.Tensor:
    """Return `buffer` if it is large enough, else a copy with at least `rows` rows and `columns` columns."""
    old_rows, _, old_columns, _ = (0, 0, 0, 0) if buffer is None else buffer.shape
    if buffer is not None and rows <= old_rows and columns <= old_columns:
        return buffer
    # The new buffer is filled with zeros, because a masked column has the weight 0, and 0 times an uninitialised value
    # can be NaN.
    grown = like.new_zeros(max(rows, old_rows), like.shape[1], max(columns, old_columns), like.shape[3])
    if buffer is not None:
        grown[:old_rows, :, :old_columns] = buffer
    return grown
