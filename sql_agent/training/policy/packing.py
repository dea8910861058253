"""Pack the sequences of a batch into one row in which the common prefix of several sequences stands once.

In training, most sequences begin with the same long prompt. Computed once, the prompt costs as much as in one of the
sequences, and gradients are those of separate sequences up to rounding.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import accumulate

import torch

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
