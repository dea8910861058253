"""Pack sequences into one row in which a shared prefix stands once, and compute attention in such a row.

In training, most sequences begin with the same long prompt. Computed once, the prompt costs as much as in one of the
sequences, and gradients are those of separate sequences up to rounding. flash-attn supports packed sequences but is
hard to build. `torch.nn.attention.varlen` is the same kernel inside PyTorch.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import accumulate, pairwise
from typing import Any

import torch
from torch.nn.functional import scaled_dot_product_attention
from transformers import AttentionInterface

NAME = "torch_varlen"
_MIN_SHARED = 16  # tokens; a shorter common prefix is not worth a segment of its own


@dataclass(frozen=True)
class Segment:
    """Consecutive tokens of the packed row; they attend causally to the tokens `prefix` of the row, then to themselves.

    `start` and `end` are places in the packed row, and so are those of `prefix`, which is empty for a first segment.
    """

    start: int
    end: int
    prefix: range


@dataclass(frozen=True, eq=False)
class Packing:
    """How a row of sequences is packed.

    kept     (packed tokens,): for each token of the packed row, its place in the row with all sequences
    places   (all tokens,): for each token of the row with all sequences, its place in the packed row
    segments the segments of the packed row, in order
    """

    kept: torch.Tensor
    places: torch.Tensor
    segments: tuple[Segment, ...]

    @property
    def keys(self) -> torch.Tensor:
        """The places in the packed row of the keys that each segment attends to, segment after segment (int64)."""
        return torch.tensor([place for s in self.segments for place in (*s.prefix, *range(s.start, s.end))])

    @property
    def query_lengths(self) -> list[int]:
        """The number of tokens of each segment."""
        return [s.end - s.start for s in self.segments]

    @property
    def key_lengths(self) -> list[int]:
        """The number of keys that each segment attends to."""
        return [len(s.prefix) + s.end - s.start for s in self.segments]


def pack(sequences: Sequence[Sequence[int]]) -> Packing:
    """Pack the token ids of `sequences`, which stand one after the other in a row.

    A token is shared by sequences that agree up to the token after it, so that also its label, the next token, is the
    same.
    """
    starts = [0, *accumulate(map(len, sequences))]
    kept: list[int] = []
    places = [0] * starts[-1]
    segments: list[Segment] = []

    def add(number: int, begin: int, prefix: range) -> range:
        """Append the tokens of a sequence from `begin` on as a segment, and return its range in the packed row."""
        added = range(len(kept), len(kept) + len(sequences[number]) - begin)
        for offset, place in enumerate(added, starts[number] + begin):
            places[offset] = place
        kept.extend(range(starts[number] + begin, starts[number + 1]))
        segments.append(Segment(added.start, added.stop, prefix))
        return added

    for numbers, shared in _clusters(sequences):
        prefix = range(0)
        if shared:
            first = numbers[0]
            prefix = range(len(kept), len(kept) + shared)
            kept.extend(range(starts[first], starts[first] + shared))
            segments.append(Segment(prefix.start, prefix.stop, range(0)))
            for number in numbers:
                places[starts[number] : starts[number] + shared] = prefix
        for number in numbers:
            add(number, shared, prefix)
    return Packing(torch.tensor(kept), torch.tensor(places), tuple(segments))


def _clusters(sequences: Sequence[Sequence[int]]) -> Iterator[tuple[list[int], int]]:
    """Yield groups of sequences, by their numbers, with the length of the prefix that each group shares; 0 for none.

    In sorted order, sequences with a common prefix are neighbours. A sequence joins a group if the group saves more
    tokens with it than without it.
    """
    ordered = sorted(range(len(sequences)), key=lambda number: tuple(sequences[number]))
    group: list[int] = []
    shared = 0
    for number in ordered:
        if group:
            limit = min(shared, len(sequences[number]) - 1) if len(group) > 1 else None
            common = _common(sequences[group[0]], sequences[number], limit)
            if common >= _MIN_SHARED and len(group) * common > (len(group) - 1) * shared:
                group.append(number)
                shared = common
                continue
            yield group, shared
        group, shared = [number], 0
    if group:
        yield group, shared


def _common(first: Sequence[int], second: Sequence[int], limit: int | None) -> int:
    """Return how many leading tokens may be shared: one less than agree, and less than either sequence has."""
    most = min(len(first), len(second))
    agreed = next((place for place in range(most) if first[place] != second[place]), most)
    return max(0, agreed - 1) if limit is None else max(0, min(agreed - 1, limit))


@dataclass(frozen=True)
class _Bounds:
    """Where each segment of a packed row starts and ends, among the queries and among the keys.

    `keys` are the places in the row of all segments' keys; None where each segment attends to itself only.
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
    (1, tokens, heads, head size), and None for the attention weights. Raises ValueError for what the kernel cannot do.
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
