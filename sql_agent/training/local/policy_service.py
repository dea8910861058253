"""Serve a policy on an OpenAI-compatible endpoint of this machine: encoder, sampler, batcher and server together."""

from __future__ import annotations

import asyncio
import copy
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace

import torch

from sql_agent.config.settings import LocalSettings
from sql_agent.system.sockets import bind_local
from sql_agent.system.tokens import new_token
from sql_agent.training.local.batcher import Batcher
from sql_agent.training.local.sampler import Request, Sampler
from sql_agent.training.policy.model import Policy
from sql_agent.training.serving.chat import ChatEncoder
from sql_agent.training.serving.engine import Generation, Sampling
from sql_agent.training.serving.server import ServerThread, build_app


class PolicyService:
    """Serves `policy` on 127.0.0.1 from construction until `close`, on the bound `sock` or else on any free port.

    It wants the key `api_key`, which is a random one unless it is given.

    With `bf16` a bf16 copy of the policy is sampled, nearly twice as fast. Its log-probabilities differ by up to 0.3
    nats from those of the fp32 weights, so the update recomputes them and never uses those of the service.
    """

    def __init__(
        self,
        policy: Policy,
        settings: LocalSettings,
        *,
        seed: int,
        bf16: bool,
        sock: socket.socket | None = None,
        api_key: str | None = None,
    ) -> None:
        self.api_key = api_key or new_token()
        self._policy = policy
        self._serving = _bf16_copy(policy) if bf16 else policy
        self._sampler = Sampler(self._serving, seed=seed)
        self._batcher = Batcher(self._sampler, max_batch=settings.max_batch, window_s=settings.batch_window_s)
        encoder = ChatEncoder(policy.tokenizer, policy.end_id)
        app = build_app(encoder, _BatchedEngine(self._batcher, settings.max_context))
        self._server = ServerThread(app, sock or bind_local(), self.api_key)
        self._server.start()

    @property
    def base_url(self) -> str:
        """Return the address of the OpenAI-compatible API, ending in /v1."""
        return self._server.base_url

    @contextmanager
    def weights_locked(self) -> Iterator[None]:
        """Sample no request inside the context, and afterwards drop all that was computed with the old weights."""
        with self._batcher.lock:
            yield
            if self._serving is not self._policy:
                self._serving.model.load_state_dict(self._policy.model.state_dict())
            self._sampler.weights_changed()

    def close(self) -> None:
        """Stop serving and free the port."""
        self._server.stop()
        self._batcher.close()


class _BatchedEngine:
    """Passes the server's requests to the batcher."""

    def __init__(self, batcher: Batcher, max_context: int) -> None:
        self._batcher = batcher
        self.max_context = max_context

    async def generate(self, prompt_ids: tuple[int, ...], sampling: Sampling, *, conversation: str) -> Generation:
        """Sample one turn after `prompt_ids`, see `Engine.generate`; the batcher needs no `conversation`."""
        request = Request(prompt_ids, sampling.max_tokens, sampling.temperature, sampling.top_p)
        try:
            return await asyncio.wrap_future(self._batcher.submit(request))
        except asyncio.CancelledError:
            request.cancelled.set()
            raise


def _bf16_copy(policy: Policy) -> Policy:
    return replace(policy, model=copy.deepcopy(policy.model).to(torch.bfloat16).requires_grad_(False).eval())
