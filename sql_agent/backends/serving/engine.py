"""What a policy must do to be served: continue token ids."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, Protocol


@dataclass(frozen=True)
class Sampling:
    """How to sample one turn: at most `max_tokens` new tokens; temperature 0 is greedy."""

    max_tokens: int
    temperature: float
    top_p: float


@dataclass(frozen=True)
class Generation:
    """The ids of one sampled turn, its end token included, and why it ended.

    `logprobs` holds each id's log-probability and `versions` the first and the last version of the weights that
    sampled it (the number of updates), where the engine knows them.
    """

    token_ids: tuple[int, ...]
    finish_reason: Literal["stop", "length"]
    logprobs: tuple[float, ...] | None = None
    versions: tuple[int, int] | None = None


class Engine(Protocol):
    """Samples turns. `max_context` is the most tokens that prompt and turn may have together."""

    max_context: int

    async def generate(self, prompt_ids: tuple[int, ...], sampling: Sampling, *, conversation: str) -> Generation:
        """Sample one turn after `prompt_ids`; cancelling the call stops the sampling.

        `conversation` is the same for all turns that begin alike, so that a cache of prefixes can be used.
        """
        ...
