"""Sample turns from the policy in a batch that rows can join and leave between any two tokens."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

import torch
from torch.nn import functional

from sql_agent.backends.policy.forward import common_prefix, expand, prefix_cache
from sql_agent.backends.policy.model import Policy
from sql_agent.backends.serving.engine import Generation

_GREEDY = 1e-5
_MIN_SHARED = 64  # tokens; a shorter common prefix is a coincidence and no system prompt


@dataclass(frozen=True, eq=False)
class Request:
    """Asks for one turn after `prompt_ids`; a client that disconnects sets `cancelled`, which ends the turn early."""

    prompt_ids: tuple[int, ...]
    max_tokens: int
    temperature: float
    top_p: float
    cancelled: threading.Event = field(default_factory=threading.Event)


@dataclass
class _Rows:
    """Holds the rows being sampled: their keys and values, attention mask, next positions and next logits.

    Rows are padded on the left, so that all of them end in the same column.
    """

    requests: list[Request]
    sampled: list[list[int]]
    cache: Any
    attention: torch.Tensor  # (rows, columns), 1 where real
    positions: torch.Tensor  # (rows, 1), of the next token
    logits: torch.Tensor  # (rows, vocabulary), fp32


class Sampler:
    """Samples from one policy, and caches the keys and values of the prompts' common prefix for its weights."""

    def __init__(self, policy: Policy, *, seed: int) -> None:
        self._policy = policy
        self._generator = torch.Generator().manual_seed(seed)
        self._prefix: tuple[int, ...] = ()
        self._prefix_cache: Any = None
        self._rows: _Rows | None = None

    @property
    def active(self) -> int:
        """Return how many rows are being sampled."""
        return len(self._rows.requests) if self._rows else 0

    def weights_changed(self) -> None:
        """Drop the cached prefix of the old weights; no row may be active."""
        self._prefix, self._prefix_cache = (), None

    def abandon(self) -> None:
        """Drop all rows, after an error."""
        self._rows = None

    @torch.inference_mode()  # type: ignore[untyped-decorator]
    def admit(self, requests: Sequence[Request]) -> None:
        """Run the prompts of `requests` and add them as rows."""
        fresh = self._prefill(requests)
        self._rows = _concatenate(self._rows, fresh) if self._rows else fresh

    @torch.inference_mode()  # type: ignore[untyped-decorator]
    def step(self) -> list[tuple[Request, Generation]]:
        """Sample one token in each row, and remove and return the rows that ended with it."""
        rows = self._rows
        if rows is None:
            return []
        chosen = self._choose(rows.logits, rows.requests)
        ended = {}
        for index, (token, request) in enumerate(zip(chosen.tolist(), rows.requests, strict=True)):
            rows.sampled[index].append(token)
            reason = self._ended(token, len(rows.sampled[index]), request)
            if reason:
                ended[index] = (request, Generation(tuple(rows.sampled[index]), reason))
        active = [i for i in range(len(rows.requests)) if i not in ended]
        self._rows = self._advance(_select(rows, active) if ended else rows, chosen[active]) if active else None
        return list(ended.values())

    def sample(self, batch: Sequence[Request]) -> list[Generation]:
        """Sample one turn for each request and return them in order."""
        self.admit(batch)
        done: dict[int, Generation] = {}
        while self.active:
            done |= {id(request): sampled for request, sampled in self.step()}
        return [done[id(request)] for request in batch]

    def _prefill(self, requests: Sequence[Request]) -> _Rows:
        prompts = [r.prompt_ids for r in requests]
        shared = self._shared(prompts)
        tails = [p[shared:] for p in prompts]
        width = max(map(len, tails))
        ids = torch.tensor([[self._policy.end_id] * (width - len(t)) + list(t) for t in tails])
        real = torch.tensor([[0] * (width - len(t)) + [1] * len(t) for t in tails])
        cache = expand(self._prefix_cache, len(tails)) if shared else None
        attention = torch.cat([real.new_ones(len(tails), shared), real], dim=1)
        positions = (attention.cumsum(-1) - 1).clamp(min=0)
        out = self._policy.model(
            input_ids=ids,
            attention_mask=attention,
            position_ids=positions[:, shared:],
            past_key_values=cache,
            use_cache=True,
            logits_to_keep=1,
        )
        return _Rows(
            requests=list(requests),
            sampled=[[] for _ in requests],
            cache=out.past_key_values,
            attention=attention,
            positions=positions[:, -1:] + 1,
            logits=out.logits[:, -1].float(),
        )

    def _advance(self, rows: _Rows, tokens: torch.Tensor) -> _Rows:
        rows.attention = functional.pad(rows.attention, (0, 1), value=1)
        out = self._policy.model(
            input_ids=tokens[:, None],
            attention_mask=rows.attention,
            position_ids=rows.positions,
            past_key_values=rows.cache,
            use_cache=True,
        )
        rows.positions = rows.positions + 1
        rows.cache, rows.logits = out.past_key_values, out.logits[:, -1].float()
        return rows

    def _shared(self, prompts: Sequence[tuple[int, ...]]) -> int:
        """Return how many leading tokens the prefix cache holds; fill it when the prompts share a new prefix."""
        known = len(self._prefix)
        if self._prefix_cache is not None and all(len(p) > known and p[:known] == self._prefix for p in prompts):
            return known
        length = common_prefix(prompts)
        if len(prompts) < 2 or length < _MIN_SHARED:
            return 0
        self._prefix = prompts[0][:length]
        self._prefix_cache = prefix_cache(self._policy.model, self._prefix)
        return length if self._prefix_cache is not None else 0

    def _choose(self, logits: torch.Tensor, requests: Sequence[Request]) -> torch.Tensor:
        """Sample the next token of each row from logits (rows, vocabulary); returns ids (rows,)."""
        temperature = torch.tensor([max(r.temperature, _GREEDY) for r in requests])[:, None]
        probabilities = torch.softmax(logits / temperature, dim=-1)
        for row, request in enumerate(requests):
            if request.top_p < 1.0:
                probabilities[row] = _nucleus(probabilities[row], request.top_p)
        drawn = torch.multinomial(probabilities, 1, generator=self._generator)[:, 0]
        greedy = torch.tensor([r.temperature <= _GREEDY for r in requests])
        return torch.where(greedy, logits.argmax(-1), drawn)

    def _ended(self, token: int, length: int, request: Request) -> Literal["stop", "length"] | None:
        if token in self._policy.stop_ids:
            return "stop"
        return "length" if length >= request.max_tokens or request.cancelled.is_set() else None


def _concatenate(old: _Rows, new: _Rows) -> _Rows:
    """Concatenate two sets of rows; the shorter one gets padding columns on its left."""
    width = max(old.attention.shape[1], new.attention.shape[1])
    for rows in (old, new):
        missing = width - rows.attention.shape[1]
        rows.attention = functional.pad(rows.attention, (missing, 0))
        for layer in rows.cache.layers:
            layer.keys = functional.pad(layer.keys, (0, 0, missing, 0))
            layer.values = functional.pad(layer.values, (0, 0, missing, 0))
    for layer, added in zip(old.cache.layers, new.cache.layers, strict=True):
        layer.keys = torch.cat([layer.keys, added.keys])
        layer.values = torch.cat([layer.values, added.values])
    return _Rows(
        requests=old.requests + new.requests,
        sampled=old.sampled + new.sampled,
        cache=old.cache,
        attention=torch.cat([old.attention, new.attention]),
        positions=torch.cat([old.positions, new.positions]),
        logits=torch.cat([old.logits, new.logits]),
    )


def _select(rows: _Rows, kept: Sequence[int]) -> _Rows:
    """Return the rows `kept`, without columns that are padding in all of them."""
    index = torch.tensor(kept)
    attention = rows.attention[index]
    start = int(attention.any(dim=0).int().argmax())
    for layer in rows.cache.layers:
        layer.keys, layer.values = layer.keys[index, :, start:], layer.values[index, :, start:]
    return _Rows(
        requests=[rows.requests[i] for i in kept],
        sampled=[rows.sampled[i] for i in kept],
        cache=rows.cache,
        attention=attention[:, start:],
        positions=rows.positions[index],
        logits=rows.logits[index],
    )


def _nucleus(probabilities: torch.Tensor, top_p: float) -> torch.Tensor:
    """Keep the smallest set of most likely tokens whose mass reaches `top_p` (Holtzman et al. 2020), renormalised."""
    ordered, index = probabilities.sort(descending=True)
    kept = ordered * ((ordered.cumsum(0) - ordered) < top_p)
    return torch.zeros_like(probabilities).scatter(0, index, kept / kept.sum())
