"""Keep the keys and values of turns that ended, because the next turn of the conversation begins with them."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Sequence

import torch

_MOST_TOKENS = 1 << 14  # 0.4 GB of SmolLM2's in bf16

Layers = Sequence[tuple[torch.Tensor, torch.Tensor]]  # keys and values of each layer, (key heads, tokens, dimension)


class KeptTurns:
    """Finds by a prompt's ids what is known of its start; the oldest of more than 16,384 tokens are dropped."""

    def __init__(self) -> None:
        self._kept: OrderedDict[tuple[int, ...], Layers] = OrderedDict()
        self._tokens = 0

    def keep(self, ids: tuple[int, ...], layers: Layers) -> None:
        """Keep `layers`, those of the last tokens of `ids`; the ones before are in a prefix."""
        if ids in self._kept:
            return
        self._kept[ids] = layers
        self._tokens += layers[0][0].shape[1]
        while self._tokens > _MOST_TOKENS:
            _, dropped = self._kept.popitem(last=False)
            self._tokens -= dropped[0][0].shape[1]

    def start_of(self, prompt: tuple[int, ...]) -> Layers | None:
        """Return what is kept of the longest start of `prompt` that leaves at least one of its tokens."""
        lengths = sorted({len(ids) for ids in self._kept if len(ids) < len(prompt)}, reverse=True)
        return next((self._kept[prompt[:n]] for n in lengths if prompt[:n] in self._kept), None)

    def clear(self) -> None:
        """Drop everything, because the weights or the prefix changed."""
        self._kept.clear()
        self._tokens = 0
