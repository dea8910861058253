"""Sample turns from the policy in a batch; rows can be added and removed between any two tokens."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Literal

import torch
from torch import Tensor

from sql_agent.training.local.kv_cache import ATTENTION, SHARING, Layers, RowCache, TurnCache, token_count
from sql_agent.training.policy.forward import common_prefix, prefix_cache
from sql_agent.training.policy.model import Policy
from sql_agent.training.serving.server import Generation

_GREEDY = 1e-5  # maximum temperature at which the most probable token is chosen
_MIN_SHARED = 64  # minimum number of tokens of a cached prefix; a shorter one is no system prompt
_MAX_PREFILL_TOKENS = 1024  # with padding


@dataclass(eq=False)
class Request:
    """A request for one turn after `prompt_ids`, with the ids `sampled` so far; set `cancelled` to end the turn."""

    prompt_ids: tuple[int, ...]
    max_tokens: int
    temperature: float
    sampled: list[int] = field(default_factory=list)
    cancelled: bool = False


class Sampler:
    """Samples from one policy; caches the keys and values of the prompts' common prefix and of finished turns."""

    def __init__(self, policy: Policy, *, seed: int) -> None:
        self._generator = torch.Generator().manual_seed(seed)
        self._prefix: tuple[int, ...] = ()
        self._rows: list[Request] = []  # the requests in the order of the rows of `_cache`
        self._turns = TurnCache()
        self._logits = torch.empty(0)  # (rows, vocabulary), of the next token of each row
        self.use(policy)

    def use(self, policy: Policy) -> None:
        """Sample from `policy` from now on; no row may be active."""
        self._policy = policy
        self._layers = policy.model.config.get_text_config().num_hidden_layers
        if policy.model.config.model_type in SHARING:
            policy.model.set_attn_implementation(ATTENTION)
        self.weights_changed()

    @property
    def active(self) -> int:
        return len(self._rows)

    def weights_changed(self) -> None:
        """Remove all cached keys and values, because the weights have changed; no row may be active."""
        self._cache = RowCache(self._layers)
        self._turns.clear()

    def abandon(self) -> None:
        """Remove all rows after an error, but keep the cached prefix."""
        self._rows, self._cache = [], RowCache(self._layers, self._cache.prefix)

    @torch.inference_mode()  # type: ignore[untyped-decorator]
    def admit(self, requests: Sequence[Request]) -> None:
        """Add a row for each of `requests`, and compute the logits of its first token."""
        shared = self._shared([request.prompt_ids for request in requests])
        has_prefix = self._cache.prefix is not None
        starts = [self._turns.longest_start(r.prompt_ids) if has_prefix == (shared > 0) else None for r in requests]
        tails = [r.prompt_ids[shared + token_count(start) :] for r, start in zip(requests, starts, strict=True)]
        for part in _of_similar_length(tails):
            self._add([requests[i] for i in part], [tails[i] for i in part], [starts[i] for i in part], shared)

    def _add(
        self,
        requests: Sequence[Request],
        tails: Sequence[tuple[int, ...]],
        starts: Sequence[Layers | None],
        shared: int,
    ) -> None:
        """Add a row for each of `requests`, and run `tails`, the uncached ends of the prompts, through the model.

        The tokens before a tail are cached: the first `shared` in the common prefix, the others in `starts`.
        """
        lengths = [len(tail) for tail in tails]
        for start in starts:
            self._cache.add(start, has_prefix=shared > 0)
        ids = torch.tensor([list(t) + [self._policy.end_id] * (max(lengths) - len(t)) for t in tails])
        out = self._policy.model.model(input_ids=ids, **self._cache.extend(len(self._rows), lengths))
        logits = self._next_logits(out.last_hidden_state[torch.arange(len(tails)), torch.tensor(lengths) - 1])
        self._logits = torch.cat([self._logits, logits]) if self._rows else logits
        self._rows += requests

    @torch.inference_mode()  # type: ignore[untyped-decorator]
    def step(self) -> list[tuple[Request, Generation]]:
        """Sample one token in each row; remove finished rows, and return their requests with the sampled turns."""
        if not self._rows:
            return []
        chosen = self._choose(self._logits, self._rows)
        for row, token in zip(self._rows, chosen.tolist(), strict=True):
            row.sampled.append(token)
        ended = []
        # The loop runs backwards, because the last row takes the index of a removed row.
        for index in reversed(range(len(self._rows))):
            row = self._rows[index]
            if reason := self._ended(row):
                ended.append((row, Generation(tuple(row.sampled), reason)))
                if (layers := self._cache.copy_of(index)) is not None:  # without the last token, which was not run
                    self._turns.add((*row.prompt_ids, *row.sampled[:-1]), layers)
                self._cache.remove(index)
                self._rows[index] = self._rows[-1]
                self._rows.pop()
        if self._rows:
            last = torch.tensor([[row.sampled[-1]] for row in self._rows])
            out = self._policy.model.model(input_ids=last, **self._cache.extend(0, [1] * len(last)))
            self._logits = self._next_logits(out.last_hidden_state[:, 0])
        else:
            self._cache = RowCache(self._layers, self._cache.prefix)
        return ended

    def _next_logits(self, hidden: Tensor) -> Tensor:
        """Return the next token's logits (rows, vocabulary) from the last hidden states `hidden` (rows, width)."""
        # Without `contiguous`, torch copies the output layer's weights for each row: 7 of 11 s for 64 prompts.
        logits: Tensor = self._policy.model.lm_head(hidden.contiguous()).float()
        return logits

    def _shared(self, prompts: Sequence[tuple[int, ...]]) -> int:
        """Return the length of the cached prefix if all `prompts` begin with this prefix, else 0.

        If a prompt begins differently and no row is active, the common prefix of `prompts` first replaces the
        cached one, if there are several prompts and their common prefix is long.
        """
        known = len(self._prefix)
        if not (known and all(len(p) > known and p[:known] == self._prefix for p in prompts)):
            length = common_prefix(prompts)
            if self._rows or len(prompts) < 2 or length < _MIN_SHARED:
                return 0
            self._prefix, self._cache = prompts[0][:length], RowCache(self._layers)
            self._turns.clear()
        model = self._policy.model
        if self._cache.prefix is None and not self._rows and model.config.model_type in SHARING:
            cache = prefix_cache(model, self._prefix)
            prefix = None if cache is None else [(layer.keys[0], layer.values[0]) for layer in cache.layers]
            self._cache = RowCache(self._layers, prefix)
        return len(self._prefix) if self._cache.prefix is not None else 0

    def _choose(self, logits: Tensor, requests: Sequence[Request]) -> Tensor:
        """Return the sampled token ids (rows,) for `logits` (rows, vocabulary)."""
        temperature = torch.tensor([max(r.temperature, _GREEDY) for r in requests])[:, None]
        probabilities = torch.softmax(logits / temperature, dim=-1)
        # Inverse transform sampling, because torch.multinomial draws a random number for each token of the vocabulary.
        mass = probabilities.cumsum(-1)
        threshold = torch.rand(len(mass), 1, generator=self._generator) * mass[:, -1:]
        drawn = torch.searchsorted(mass, threshold, right=True)[:, 0].clamp(max=mass.shape[-1] - 1)
        greedy = torch.tensor([r.temperature <= _GREEDY for r in requests])
        return torch.where(greedy, logits.argmax(-1), drawn)

    def _ended(self, row: Request) -> Literal["stop", "length"] | None:
        if row.sampled[-1] in self._policy.stop_ids:
            return "stop"
        return "length" if len(row.sampled) >= row.max_tokens or row.cancelled else None


def _of_similar_length(tails: Sequence[tuple[int, ...]]) -> list[list[int]]:
    """Split the indices of `tails` into parts of limited size in which no tail is over twice as long as another.

    Without such parts, the padding for one long tool result among 96 rows made a step take three times as long.
    """
    parts: list[list[int]] = []
    for index in sorted(range(len(tails)), key=lambda index: len(tails[index])):
        length, part = len(tails[index]), parts[-1] if parts else []
        if part and length <= 2 * len(tails[part[0]]) and (len(part) + 1) * length <= _MAX_PREFILL_TOKENS:
            part.append(index)
        else:
            parts.append([index])
    return parts
