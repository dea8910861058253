"""The interface between the policy server and the engine that samples; nothing here is slow to import."""

from __future__ import annotations

import socket
from dataclasses import dataclass
from typing import Literal, Protocol

from sql_agent.system.sockets import bind_local
from sql_agent.system.tokens import new_token


@dataclass(frozen=True)
class Listener:
    """A bound socket of a policy server, and the key that its clients must send.

    The address is known before the server starts, because proxies are started with it first.
    """

    socket: socket.socket
    api_key: str

    @classmethod
    def open(cls) -> Listener:
        """Bind a free port of 127.0.0.1, with a random key."""
        return cls(bind_local(), new_token())

    @property
    def base_url(self) -> str:
        """Return the address of the OpenAI-compatible API, ending in /v1."""
        host, port = self.socket.getsockname()[:2]
        return f"http://{host}:{port}/v1"


@dataclass(frozen=True)
class Sampling:
    """How to sample one turn: at most `max_tokens` new tokens; temperature 0 is greedy."""

    max_tokens: int
    temperature: float


@dataclass(frozen=True)
class Generation:
    """The ids of one sampled turn, its end token included, and why it ended.

    `logprobs` are the natural log-probabilities of the ids, and `versions` the first and the last version of the
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
