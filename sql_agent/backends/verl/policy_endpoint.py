"""The policy that verl trains, as an OpenAI-compatible endpoint with exact token ids."""

from __future__ import annotations

import gc
import importlib
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import ray

from sql_agent.backends.serving.chat import ChatEncoder
from sql_agent.backends.serving.engine import Generation, Sampling
from sql_agent.backends.serving.server import ServerThread, build_app
from sql_agent.backends.serving.tokenizer import generation_config, load_tokenizer, stop_ids

_CLIENTS = "verl.workers.rollout.llm_server"  # what `serve` is given is of a class from there


class ReplicaEngine:
    """Samples from verl's vLLM replicas through verl's own client.

    That client spreads conversations over the replicas and keeps each on one, and in the asynchronous modes it carries
    on a turn that a weight update interrupted.
    """

    def __init__(self, client: Any, stops: tuple[int, ...], max_context: int) -> None:
        self._client = client
        self._stops = stops
        self.max_context = max_context

    async def generate(self, prompt_ids: tuple[int, ...], sampling: Sampling, *, conversation: str) -> Generation:
        output = await self._client.generate(
            conversation,
            prompt_ids=list(prompt_ids),
            sampling_params={
                "temperature": sampling.temperature,
                "top_p": sampling.top_p,
                "max_tokens": sampling.max_tokens,
                "stop_token_ids": list(self._stops),
                "logprobs": True,
            },
        )
        ids = tuple(output.token_ids)
        ended = bool(ids) and ids[-1] in self._stops
        versions = output.extra_fields.get("min_global_steps"), output.extra_fields.get("max_global_steps")
        return Generation(ids, "stop" if ended else "length", tuple(output.log_probs), versions)


@ray.remote(num_cpus=0)  # it mostly waits; a whole core reserved for it would starve others
class PolicyEndpoint:
    """Serves the policy from this actor's host; it renders and parses the conversations of the rollouts it is given.

    It is made before there is a policy, so that its imports run beside those of verl and vLLM.
    """

    def __init__(self) -> None:
        importlib.import_module(_CLIENTS)

    def serve(self, client: Any, model: str, max_context: int) -> str:
        """Begin to serve what `client` reaches; returns the address, ending in /v1."""
        tokenizer = load_tokenizer(model)
        stops = stop_ids(tokenizer, generation_config(model))
        app = build_app(ChatEncoder(tokenizer, stops[0]), ReplicaEngine(client, stops, max_context))
        sock = socket.socket()
        sock.bind((ray.util.get_node_ip_address(), 0))
        gc.freeze()  # else each full collection walks all of vLLM and torch
        self._server = ServerThread(app, sock)
        self._server.start()
        return self._server.base_url


@contextmanager
def endpoint_actors(count: int) -> Iterator[None]:
    """Start the actors of `count` endpoints; `find_endpoints` of the same Ray job has them until the context ends."""
    # Held, because a Ray actor ends with the last handle to it.
    actors = [PolicyEndpoint.options(name=_name(index)).remote() for index in range(count)]  # type: ignore[attr-defined]
    try:
        yield
    finally:
        for actor in actors:
            ray.kill(actor)


def find_endpoints(count: int) -> list[Any]:
    """Handles to the actors of the job's endpoints. Raises ValueError when there are fewer than `count`."""
    return [ray.get_actor(_name(index)) for index in range(count)]


def _name(index: int) -> str:
    return f"policy-endpoint-{index}"
