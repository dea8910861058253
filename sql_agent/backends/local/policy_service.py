"""A policy that answers on an endpoint: encoder, sampler, batcher and server as one thing with a start and an end."""

from __future__ import annotations

import asyncio
import copy
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace

import torch

from sql_agent.backends.local.batcher import Batcher
from sql_agent.backends.local.sampler import Request, Sampler
from sql_agent.backends.policy.model import Policy
from sql_agent.backends.serving.chat import ChatEncoder
from sql_agent.backends.serving.engine import Generation, Sampling
from sql_agent.backends.serving.server import ServerThread, build_app
from sql_agent.config.settings import LocalSettings
from sql_agent.system.sockets import bind_local


class PolicyService:
    """Serves `policy` on 127.0.0.1 from construction until `close`; `sock` is a bound socket, or any port is taken.

    With `bf16` a bf16 copy answers, at nearly twice the speed. Its log-probabilities differ from the fp32 weights' by
    up to 0.3 nats, which is why the update recomputes them and never takes them from here.
    """

    def __init__(
        self, policy: Policy, settings: LocalSettings, *, seed: int, bf16: bool, sock: socket.socket | None = None
    ) -> None:
        self._policy = policy
        self._serving = _bf16_copy(policy) if bf16 else policy
        self._sampler = Sampler(self._serving, seed=seed)
        self._batcher = Batcher(self._sampler, max_batch=settings.max_batch, window_s=settings.batch_window_s)
        encoder = ChatEncoder(policy.tokenizer, policy.end_id)
        app = build_app(encoder, _BatchedEngine(self._batcher, settings.max_context))
        self._server = ServerThread(app, sock or bind_local())
        self._server.start()

    @property
    def base_url(self) -> str:
        """The address of the OpenAI-compatible API, ending in /v1."""
        return self._server.base_url

    @contextmanager
    def weights_locked(self) -> Iterator[None]:
        """No request is sampled inside; afterwards nothing computed with the old weights is left."""
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
    """The batcher as the server sees it."""

    def __init__(self, batcher: Batcher, max_context: int) -> None:
        self._batcher = batcher
        self.max_context = max_context

    async def generate(self, prompt_ids: tuple[int, ...], sampling: Sampling, *, conversation: str) -> Generation:
        request = Request(prompt_ids, sampling.max_tokens, sampling.temperature, sampling.top_p)
        try:
            sampled = await asyncio.wrap_future(self._batcher.submit(request))
        except asyncio.CancelledError:
            request.cancelled.set()
            raise
        return Generation(sampled.token_ids, sampled.finish_reason)


def _bf16_copy(policy: Policy) -> Policy:
    model = copy.deepcopy(policy.model).to(torch.bfloat16).requires_grad_(False).eval()
    model.set_attn_implementation("sdpa")  # eager is the faster one in training only
    return replace(policy, model=model)
