"""Sample turns from the policy in a batch that rows can join and leave between any two tokens."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

import torch

from sql_agent.backends.local.kv_cache import RowCache
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
class _Row:
    """Holds one row being sampled: its request, the tokens so far, and the logits (vocabulary) of the next one."""

    request: Request
    logits: torch.Tensor
    sampled: list[int] = field(default_factory=list)


class Sampler:
    """Samples from one policy, and caches the keys and values of the prompts' common prefix for its weights."""

    def __init__(self, policy: Policy, *, seed: int) -> None:
        self._policy = policy
        self._generator = torch.Generator().manual_seed(seed)
        self._prefix: tuple[int, ...] = ()
        self._prefix_cache: Any = None
        self._rows: list[_Row] = []  # in the order of the rows of `_cache`
        self._cache = RowCache()

    @property
    def active(self) -> int:
        """Return how many rows are being sampled."""
        return len(self._rows)

    def weights_changed(self) -> None:
        """Drop the cached prefix of the old weights; no row may be active."""
        self._prefix, self._prefix_cache = (), None

    def abandon(self) -> None:
        """Drop all rows, after an error."""
        self._rows, self._cache = [], RowCache()

    @torch.inference_mode()  # type: ignore[untyped-decorator]
    def admit(self, requests: Sequence[Request]) -> None:
        """Run the prompts of `requests` and add them as rows."""
        prompts = [r.prompt_ids for r in requests]
        shared = self._shared(prompts)
        tails = [p[shared:] for p in prompts]
        width = max(map(len, tails))
        ids = torch.tensor([[self._policy.end_id] * (width - len(t)) + list(t) for t in tails])
        real = torch.tensor([[0] * (width - len(t)) + [1] * len(t) for t in tails])
        attention = torch.cat([real.new_ones(len(tails), shared), real], dim=1)
        positions = (attention.cumsum(-1) - 1).clamp(min=0)
        out = self._policy.model(
            input_ids=ids,
            attention_mask=attention,
            position_ids=positions[:, shared:],
            past_key_values=expand(self._prefix_cache, len(tails)) if shared else None,
            use_cache=True,
            logits_to_keep=1,
        )
        self._cache.add(out.past_key_values, [[(0, shared), (shared + width - len(t), shared + width)] for t in tails])
        self._rows += [_Row(r, logits) for r, logits in zip(requests, out.logits[:, -1].float(), strict=True)]

    @torch.inference_mode()  # type: ignore[untyped-decorator]
    def step(self) -> list[tuple[Request, Generation]]:
        """Sample one token in each row, and remove and return the rows that ended with it."""
        if not self._rows:
            return []
        chosen = self._choose(torch.stack([r.logits for r in self._rows]), [r.request for r in self._rows])
        for row, token in zip(self._rows, chosen.tolist(), strict=True):
            row.sampled.append(token)
        ended = []
        for index in reversed(
            range(len(self._rows))
        ):  # backwards, because the last row takes the place of a removed one
            row = self._rows[index]
            if reason := self._ended(row):
                ended.append((row.request, Generation(tuple(row.sampled), reason)))
                self._cache.remove(index)
                self._rows[index] = self._rows[-1]
                self._rows.pop()
        if self._rows:
            self._advance()
        else:
            self._cache = RowCache()
        return ended

    def sample(self, batch: Sequence[Request]) -> list[Generation]:
        """Sample one turn for each request and return them in order."""
        self.admit(batch)
        done: dict[int, Generation] = {}
        while self.active:
            done |= {id(request): sampled for request, sampled in self.step()}
        return [done[id(request)] for request in batch]

    def _advance(self) -> None:
        """Run the last token of each row, for the logits of the next one."""
        out = self._policy.model(
            input_ids=torch.tensor([[row.sampled[-1]] for row in self._rows]), **self._cache.extend()
        )
        for row, logits in zip(self._rows, out.logits[:, -1].float(), strict=True):
            row.logits = logits

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
        # By the inverse of the distribution function, because torch.multinomial draws a number for every token.
        mass = probabilities.cumsum(-1)
        threshold = torch.rand(len(mass), 1, generator=self._generator) * mass[:, -1:]
        drawn = torch.searchsorted(mass, threshold, right=True)[:, 0].clamp(max=mass.shape[-1] - 1)
        greedy = torch.tensor([r.temperature <= _GREEDY for r in requests])
        return torch.where(greedy, logits.argmax(-1), drawn)

    def _ended(self, row: _Row) -> Literal["stop", "length"] | None:
        if row.sampled[-1] in self._policy.stop_ids:
            return "stop"
        request = row.request
        return "length" if len(row.sampled) >= request.max_tokens or request.cancelled.is_set() else None


def _nucleus(probabilities: torch.Tensor, top_p: float) -> torch.Tensor:
    """Keep the smallest set of most likely tokens whose mass reaches `top_p` (Holtzman et al. 2020), renormalised."""
    ordered, index = probabilities.sort(descending=True)
    kept = ordered * ((ordered.cumsum(0) - ordered) < top_p)
    return torch.zeros_like(probabilities).scatter(0, index, kept / kept.sum())
