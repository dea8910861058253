"""Pack sequences into one row that has each shared prefix only once, and compute attention in such a row.

Most sequences of training begin with the same long prompt, which a packed row computes once. Gradients are those of
separate sequences up to rounding. flash-attn supports packed sequences but is hard to build;
`torch.nn.attention.varlen` is the same kernel inside PyTorch.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import accumulate, pairwise
from typing import Any

import torch
from torch import Tensor
from torch.nn.functional import scaled_dot_product_attention
from transformers import AttentionInterface

NAME = "torch_varlen"
MIN_SHARED = 16  # minimum number of tokens; sharing a shorter prefix does not pay


@dataclass(frozen=True)
class Segment:
    """The tokens `start` to `end` of the packed row, which attend causally to the tokens `prefix` and to themselves."""

    start: int
    end: int
    prefix: range


@dataclass(frozen=True, eq=False)
class Packing:
    """The mapping between a row of concatenated sequences and the packed row.

    `kept` (packed tokens,) is the index of each packed token in the concatenated row. `places` (all tokens,) is the
    index of each concatenated token in the packed row, which consists of `segments`.
    """

    kept: Tensor
    places: Tensor
    segments: tuple[Segment, ...]


def pack(sequences: Sequence[Sequence[int]]) -> Packing:
    """Return the packing of the token ids `sequences`.

    Sequences share a token only if they also agree in the next token, which is the label of the shared token.
    """
    starts = [0, *accumulate(map(len, sequences))]
    kept: list[Tensor] = []
    places = torch.empty(starts[-1], dtype=torch.long)
    segments: list[Segment] = []

    def add(begin: int, end: int, prefix: range) -> range:
        """Copy the tokens from `begin` to before `end` to the packed row, as a segment; return their packed indices."""
        first = segments[-1].end if segments else 0
        added = range(first, first + end - begin)
        places[begin:end] = _indices(added)
        kept.append(torch.arange(begin, end))
        segments.append(Segment(added.start, added.stop, prefix))
        return added

    for numbers, shared in _clusters(sequences):
        prefix = range(0)
        if shared:
            first = starts[numbers[0]]
            prefix = add(first, first + shared, prefix)
        for number in numbers:
            places[starts[number] : starts[number] + shared] = _indices(prefix)
            add(starts[number] + shared, starts[number + 1], prefix)
    return Packing(torch.cat(kept), places, tuple(segments))


def _indices(of: range) -> Tensor:
    return torch.arange(of.start, of.stop)


def _clusters(sequences: Sequence[Sequence[int]]) -> Iterator[tuple[list[int], int]]:
    """Yield groups of indices of `sequences`, each with the length of the prefix that the group shares, which may be 0.

    In sorted order, sequences with a common prefix are neighbours. A sequence joins a group if this saves tokens.
    """
    ordered = sorted(range(len(sequences)), key=lambda number: tuple(sequences[number]))
    group: list[int] = []
    shared = 0
    for number in ordered:
        if group:
            common = _common(sequences[group[0]], sequences[number])
            if len(group) > 1:
                common = min(common, shared)
            if common >= MIN_SHARED and len(group) * common > (len(group) - 1) * shared:
                group.append(number)
                shared = common
                continue
            yield group, shared
        group, shared = [number], 0
    if group:
        yield group, shared


def _common(first: Sequence[int], second: Sequence[int]) -> int:
    """Return how many leading tokens two sequences may share: all equal tokens but the last, whose label may differ."""
    most = min(len(first), len(second))
    agreed = next((index for index in range(most) if first[index] != second[index]), most)
    return max(0, agreed - 1)


@dataclass(frozen=True)
class _Bounds:
    """The numbers of queries and keys of a packed row's segments, and their cumulative sums as tensors.

    `keys` lists, segment by segment, the indices of the tokens to attend to. It is None if each segment attends only to
    itself.
    """

    query_lengths: Sequence[int]
    key_lengths: Sequence[int]
    queries: Tensor
    keys_end: Tensor
    keys: Tensor | None = None


def packed_attention(  # noqa: PLR0917  the signature is transformers'
    module: torch.nn.Module,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attention_mask: Tensor | None,
    scaling: float | None = None,
    dropout: float = 0.0,
    position_ids: Tensor | None = None,
    **_: Any,
) -> tuple[Tensor, None]:
    """Compute causal attention inside each packed sequence; a sequence starts wherever `position_ids` is 0.

    `query` has the shape (1, heads, tokens, head size); `key` and `value` may have fewer heads. `position_ids` has one
    element for each token, and the attribute of `share_prefixes` if sequences share prefixes. Returns the output (1,
    tokens, heads, head size), and None for the attention weights. Raises ValueError for several rows, and for dropout.
    """
    if query.shape[0] != 1 or position_ids is None:
        raise ValueError(f"{NAME} needs one packed row with position ids, not a batch of {query.shape[0]} rows")
    if dropout:
        raise ValueError(f"{NAME} does not support dropout")
    bounds = _bounds_of(position_ids)
    # The kernel reads (tokens, heads, head size).
    q, k, v = (tensor.squeeze(0).transpose(0, 1) for tensor in (query, key, value))
    if bounds.keys is not None:
        # In fp32, because the gradient of a shared key is a sum over many sequences, and bf16 rounds each addition.
        k, v = (tensor.float().index_select(0, bounds.keys).to(q.dtype) for tensor in (k, v))
    groups = q.shape[1] // k.shape[1]
    if groups > 1:
        k, v = k.repeat_interleave(groups, dim=1), v.repeat_interleave(groups, dim=1)
    attend = _varlen if q.is_cuda else _by_segment
    return attend(q, k, v, bounds, scaling).unsqueeze(0), None


def _varlen(q: Tensor, k: Tensor, v: Tensor, bounds: _Bounds, scaling: float | None) -> Tensor:
    from torch.nn.attention.varlen import varlen_attn  # noqa: PLC0415  PyTorch before 2.10 lacks it

    if torch.is_autocast_enabled("cuda"):  # with fp32 weights, the rotary embedding returns fp32
        q, k, v = (each.to(torch.get_autocast_dtype("cuda")) for each in (q, k, v))
    # If a segment has fewer queries than keys, the kernel aligns the last query with the last key.
    lengths = bounds.queries, bounds.keys_end, max(bounds.query_lengths), max(bounds.key_lengths)
    out: Tensor = varlen_attn(
        q.contiguous(), k.contiguous(), v.contiguous(), *lengths, scale=scaling, window_size=(-1, 0)
    )
    return out


def _by_segment(q: Tensor, k: Tensor, v: Tensor, bounds: _Bounds, scaling: float | None) -> Tensor:
    """Compute the attention segment by segment, for devices without the kernel."""
    outputs = []
    ends = (pairwise((0, *accumulate(lengths))) for lengths in (bounds.query_lengths, bounds.key_lengths))
    for (start, end), (first, last) in zip(*ends, strict=True):
        queries, keys = end - start, last - first
        mask = torch.ones(queries, keys, dtype=torch.bool, device=q.device).tril(keys - queries)
        own, read, values = (each.transpose(0, 1) for each in (q[start:end], k[first:last], v[first:last]))
        outputs.append(scaled_dot_product_attention(own, read, values, mask, scale=scaling).transpose(0, 1))
    return torch.cat(outputs)


def share_prefixes(position_ids: Tensor, packing: Packing) -> None:
    """Tell `packed_attention` the shared prefixes of a row, by an attribute of `position_ids` (1, packed tokens)."""
    # For each segment, the indices of the tokens to which the segment attends.
    keys = [torch.cat([_indices(s.prefix), torch.arange(s.start, s.end)]) for s in packing.segments]
    query_lengths = [s.end - s.start for s in packing.segments]
    position_ids._bounds = _bounds(query_lengths, list(map(len, keys)), position_ids, torch.cat(keys))


def _bounds_of(position_ids: Tensor) -> _Bounds:
    """Return the bounds of a row, cached as an attribute of `position_ids`, because all layers get the same tensor."""
    known: _Bounds | None = getattr(position_ids, "_bounds", None)
    if known is None:
        row = position_ids.reshape(-1)
        starts = (row == 0).nonzero().flatten().tolist()
        if bool(((row.diff() != 1) & (row[1:] != 0)).any()):  # `share_prefixes` marked another tensor
            raise ValueError(f"the positions of a row for {NAME} jump inside a sequence")
        lengths = [end - start for start, end in pairwise((*starts, row.numel()))]
        known = _bounds(lengths, lengths, position_ids, None)
        position_ids._bounds = known
    return known


def _bounds(query_lengths: Sequence[int], key_lengths: Sequence[int], like: Tensor, keys: Tensor | None) -> _Bounds:
    def ends(lengths: Sequence[int]) -> Tensor:
        return torch.tensor([0, *accumulate(lengths)], dtype=torch.int32, device=like.device)

    on_device = keys if keys is None else keys.to(like.device)
    return _Bounds(query_lengths, key_lengths, ends(query_lengths), ends(key_lengths), on_device)


def register() -> None:
    """Register `attn_implementation="torch_varlen"` with transformers in this process."""
    AttentionInterface.register(NAME, packed_attention)
