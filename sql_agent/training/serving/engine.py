"""Define the interface between the server and the engine that samples from a policy."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, Protocol


@dataclass(frozen=True)
class Sampling:
    """Sets how to sample one turn: at most `max_tokens` new tokens; temperature 0 is greedy."""

    max_tokens: int
    temperature: float
    top_p: float


@dataclass(frozen=True)
class Generation:
    """Holds the ids of one sampled turn, its end token included, and why it ended.

    `logprobs` holds the natural log-probability of each id, and `versions` the first and the last version of the
    weights that sampled the turn (the number of updates); None where the engine does not know them.
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
