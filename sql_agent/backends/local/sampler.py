"""Sample a batch of turns from the policy, each with its own temperature, nucleus and length."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

import torch

from sql_agent.backends.local.forward import common_prefix, expand, prefix_cache
from sql_agent.backends.local.model import Policy

_GREEDY = 1e-5
_MIN_SHARED = 64  # tokens; a prefix worth keeping is a system prompt, not a coincidence


@dataclass(frozen=True)
class Request:
    """One turn to sample. `cancelled` is set by a client that went away, and ends the row early."""

    prompt_ids: tuple[int, ...]
    max_tokens: int
    temperature: float
    top_p: float
    cancelled: threading.Event = field(default_factory=threading.Event)


@dataclass(frozen=True)
class Sampled:
    """The ids of one sampled turn, its end token included, and why it ended."""

    token_ids: tuple[int, ...]
    finish_reason: Literal["stop", "length"]


class Sampler:
    """Samples from one policy; keys and values of the prompts' shared start are kept until the weights change."""

    def __init__(self, policy: Policy, *, seed: int) -> None:
        self._policy = policy
        self._generator = torch.Generator().manual_seed(seed)
        self._prefix: tuple[int, ...] = ()
        self._cache: Any = None

    def weights_changed(self) -> None:
        """Forget what was computed with the old weights."""
        self._prefix, self._cache = (), None

    @torch.inference_mode()  # type: ignore[untyped-decorator]
    def sample(self, batch: Sequence[Request]) -> list[Sampled]:
        """One turn for each request, in order. Rows of different lengths are padded on the left."""
        out, positions, attention = self._prefill([r.prompt_ids for r in batch])
        rows: list[list[int]] = [[] for _ in batch]
        reasons: list[Literal["stop", "length"] | None] = [None] * len(batch)
        for _ in range(max(r.max_tokens for r in batch)):
            chosen = self._choose(out.logits[:, -1].float(), batch)
            for index, (token, request) in enumerate(zip(chosen.tolist(), batch, strict=True)):
                if reasons[index] is None:
                    rows[index].append(token)
                    reasons[index] = self._ended(token, len(rows[index]), request)
            if all(reasons):
                break
            positions = positions + 1
            attention = torch.cat([attention, attention.new_ones(len(batch), 1)], dim=1)
            out = self._policy.model(
                input_ids=chosen[:, None],
                attention_mask=attention,
                position_ids=positions,
                past_key_values=out.past_key_values,
                use_cache=True,
            )
        return [Sampled(tuple(row), reason or "length") for row, reason in zip(rows, reasons, strict=True)]

    def _prefill(self, prompts: Sequence[tuple[int, ...]]) -> tuple[Any, torch.Tensor, torch.Tensor]:
        """Run the prompts; returns the model's output, the last position (rows, 1) and the attention mask."""
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
            past_key_values=expand(self._cache, len(tails)) if shared else None,
            use_cache=True,
            logits_to_keep=1,
        )
        return out, positions[:, -1:], attention

    def _shared(self, prompts: Sequence[tuple[int, ...]]) -> int:
        """How many leading tokens come from the kept cache; computes that cache when a new start is worth it."""
        known = len(self._prefix)
        if self._cache is not None and all(len(p) > known and p[:known] == self._prefix for p in prompts):
            return known
        length = common_prefix(prompts)
        if len(prompts) < 2 or length < _MIN_SHARED:
            return 0
        self._prefix = prompts[0][:length]
        self._cache = prefix_cache(self._policy.model, self._prefix)
        return length if self._cache is not None else 0

    def _choose(self, logits: torch.Tensor, batch: Sequence[Request]) -> torch.Tensor:
        """The next token of each row, from logits (rows, vocabulary)."""
        temperature = torch.tensor([max(r.temperature, _GREEDY) for r in batch])[:, None]
        probabilities = torch.softmax(logits / temperature, dim=-1)
        for row, request in enumerate(batch):
            if request.top_p < 1.0:
                probabilities[row] = _nucleus(probabilities[row], request.top_p)
        drawn = torch.multinomial(probabilities, 1, generator=self._generator)[:, 0]
        greedy = torch.tensor([r.temperature <= _GREEDY for r in batch])
        return torch.where(greedy, logits.argmax(-1), drawn)

    def _ended(self, token: int, length: int, request: Request) -> Literal["stop", "length"] | None:
        if token in self._policy.stop_ids:
            return "stop"
        return "length" if length >= request.max_tokens or request.cancelled.is_set() else None


def _nucleus(probabilities: torch.Tensor, top_p: float) -> torch.Tensor:
    """Keep the smallest set of most likely tokens whose mass reaches `top_p` (Holtzman et al. 2020), renormalised."""
    ordered, index = probabilities.sort(descending=True)
    kept = ordered * ((ordered.cumsum(0) - ordered) < top_p)
    return torch.zeros_like(probabilities).scatter(0, index, kept / kept.sum())
