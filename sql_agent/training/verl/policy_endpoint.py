"""Serve the policy that verl trains on OpenAI-compatible endpoints whose replies have the exact token ids."""

from __future__ import annotations

import gc
import importlib
import pkgutil
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import ray

from sql_agent.config.settings_schema import AgentSettings
from sql_agent.system.servers import bind
from sql_agent.training.serving.server import Generation, Sampling, ServerThread, build_app
from sql_agent.training.serving.tokenizer import load_encoder
from sql_agent.training.verl.interprocess import run_token

_CLIENTS = "verl.workers.rollout.llm_server"  # the module that defines the client passed to `serve`


class FinalOnly:
    """A stand-in that is unpickled as vLLM's `RequestOutputKind.FINAL_ONLY`; it saves the import of vLLM (7 s)."""

    def __reduce__(self) -> tuple[Any, ...]:
        return pkgutil.resolve_name, ("vllm.sampling_params:RequestOutputKind.FINAL_ONLY",)


class ReplicaEngine:
    """Samples from verl's vLLM replicas through verl's own client.

    The client sends all turns of a conversation to the same replica. In the asynchronous trainer modes the client also
    continues turns that were interrupted by a weight update.
    """

    def __init__(self, client: Any, stops: tuple[int, ...], max_context: int, interrupted: bool) -> None:
        self._client = client
        self._stops = stops
        self.max_context = max_context
        self._interrupted = interrupted  # then verl waits for a turn's first token

    async def generate(self, prompt_ids: tuple[int, ...], sampling: Sampling, *, conversation: str) -> Generation:
        output = await self._client.generate(
            conversation,
            prompt_ids=list(prompt_ids),
            sampling_params={
                "temperature": sampling.temperature,
                "top_p": 1.0,
                "max_tokens": sampling.max_tokens,
                "stop_token_ids": list(self._stops),
                "logprobs": True,
                "detokenize": False,  # with text, a token takes vLLM 90 µs in place of 13
                **({} if self._interrupted else {"output_kind": FinalOnly()}),
            },
        )
        ids = tuple(output.token_ids)
        ended = bool(ids) and ids[-1] in self._stops
        versions = output.extra_fields.get("min_global_steps"), output.extra_fields.get("max_global_steps")
        return Generation(ids, "stop" if ended else "length", tuple(output.log_probs), versions)


@ray.remote(num_cpus=0)  # the endpoint reserves no core, because it mostly waits
class PolicyEndpoint:
    """A Ray actor that serves the policy, and renders and parses the conversations of its rollouts.

    The actor listens at the IP address `host`, or at Ray's address of its host if `host` is None. The actor starts
    before there is a policy, so that its imports run at the same time as those of verl and vLLM.
    """

    def __init__(self, host: str | None) -> None:
        self._host = host
        importlib.import_module(_CLIENTS)

    def serve(self, client: Any, model: str, max_context: int, agent: dict[str, Any], interrupted: bool) -> str:
        """Start to serve the policy that `client` samples from, and return the endpoint's URL, ending in /v1.

        `model` is the folder or hub id of the tokenizer, and `max_context` the maximum number of tokens of a prompt and
        its response together. `agent` has the settings `TEMPLATE_SETTINGS` of the section `agent`. `interrupted` is
        whether a weight update may interrupt a turn.
        """
        settings = AgentSettings(**agent)
        encoder, stops = load_encoder(model, settings)
        gc.freeze()  # otherwise each full garbage collection would examine all objects of vLLM and torch
        self._server = ServerThread(bind(self._host or ray.util.get_node_ip_address()), run_token())
        engine = ReplicaEngine(client, stops, max_context, interrupted)
        self._server.start(build_app(encoder, engine, thought_tokens=settings.thought_tokens))
        return self._server.base_url


@contextmanager
def endpoint_actors(count: int, *, here: Any = None) -> Iterator[None]:
    """Run `count` PolicyEndpoint actors inside the context; `find_endpoints` finds these actors in the same Ray job.

    Ray spreads the actors over the hosts of its cluster. With `here`, the scheduling strategy for this host, all actors
    run on this host and listen at 127.0.0.1, which only processes on this host can reach.
    """
    host = "127.0.0.1" if here else None
    options = [{"name": _name(index)} | ({"scheduling_strategy": here} if here else {}) for index in range(count)]
    # The handles are kept, because Ray ends an actor when its last handle is gone.
    actors = [PolicyEndpoint.options(**each).remote(host) for each in options]  # type: ignore[attr-defined]
    try:
        yield
    finally:
        for actor in actors:
            ray.kill(actor)


def find_endpoints(count: int) -> list[Any]:
    """Return the handles of the `count` PolicyEndpoint actors of this Ray job. Raises ValueError if one is missing."""
    return [ray.get_actor(_name(index)) for index in range(count)]


def _name(index: int) -> str:
    return f"policy-endpoint-{index}"
