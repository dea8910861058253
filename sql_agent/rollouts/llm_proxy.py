"""The LLM proxy: forward each model call of a rollout to the model's server, and write its token ids to the store.

agent-lightning's own proxy is litellm, which took ten times the processor time of a call, and seconds to start.
"""

from __future__ import annotations

import asyncio
import json
import os
import signal
import socket
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import aiohttp
from pydantic_core import from_json, to_json
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from sql_agent.agent.workflows import ROLE_HEADER
from sql_agent.config.endpoints import NO_API_KEY, plain_schema
from sql_agent.rollouts.run_role import StoreAddress
from sql_agent.rollouts.spans import PREFIX, ROLE_ATTRIBUTE, SEQUENCE_HEADER, SpanExporter, make_span
from sql_agent.system.resources import ends_without_memory
from sql_agent.system.servers import bearer, uvicorn_server

HEALTH = "/health"  # the path that needs no token
_ROLLOUT = "/rollout/{rollout}/attempt/{attempt}"
# Keys of a reply that are written to the span only: they are most of the reply's bytes, and the agent ignores them.
_FOR_SPANS = ("prompt_token_ids", "response_token_ids", "response_logprobs", "response_versions", "response_forced")
_CHOICES = "choices"  # vLLM itself has the response ids in this key
_CONNECT_S = 10.0


@dataclass(frozen=True)
class ServedModel:
    """A model behind the proxy: `name` in calls of the proxy, `model` at its server `base_url` (ending in /v1).

    `has_token_ids` is false for a server that cannot return token ids.
    """

    name: str
    base_url: str
    model: str = "policy"
    api_key: str = field(default=NO_API_KEY, repr=False)
    has_token_ids: bool = True


@dataclass(frozen=True)
class Answer:
    """The response to the caller (`status`, `body`) and the model server's full reply, None for a failed call."""

    status: int
    body: bytes
    reply: Mapping[str, Any] | None


class PolicyCalls:
    """Forwards calls to the servers of `models`."""

    def __init__(self, models: Sequence[ServedModel]) -> None:
        self._models = {model.name: model for model in models}
        self._is_direct = all(model.has_token_ids for model in models)  # our own servers are not behind http_proxy
        self._session: aiohttp.ClientSession | None = None

    async def close(self) -> None:
        """Close the connections to the model servers."""
        if self._session is not None:
            await self._session.close()

    async def answer(self, body: bytes) -> Answer:
        """Forward the JSON call `body` to its model's server; status 400: malformed call, 502: no answer."""
        try:
            call = from_json(body)
            model = self._models[call["model"]]
        except (ValueError, KeyError, TypeError) as error:
            return _failed(400, f"not a call of a known model ({', '.join(self._models)}): {error!r}")
        call["model"] = model.model
        if model.has_token_ids:
            call["return_token_ids"] = True
        if "tools" in call:
            call["tools"] = plain_schema(call["tools"])
        if self._session is None:
            self._session = aiohttp.ClientSession(
                connector=aiohttp.TCPConnector(limit=0),
                timeout=aiohttp.ClientTimeout(total=None, sock_connect=_CONNECT_S),
                headers={"Content-Type": "application/json"},
                trust_env=not self._is_direct,
            )
        url, key = f"{model.base_url}/chat/completions", bearer(model.api_key)
        try:
            async with self._session.post(url, data=to_json(call), headers=key) as response:
                status, content = response.status, await response.read()
            reply = from_json(content) if status == 200 else None
        except Exception as error:  # any error: aiohttp does not wrap uvloop's RuntimeError
            return _failed(502, f"the policy at {model.base_url} did not answer: {type(error).__name__}: {error}")
        if reply is None:
            return Answer(status, content, None)
        return Answer(status, to_json({key: reply[key] for key in reply if key not in _FOR_SPANS}), reply)


def _failed(status: int, message: str) -> Answer:
    return Answer(status, to_json({"error": {"message": message, "type": "policy", "code": status}}), None)


def serve_proxy(
    sock: socket.socket, store: StoreAddress, models: Sequence[ServedModel], log_file: Path, token: str
) -> None:
    """Run an LLM proxy for `models` at the listening socket `sock`, as the job of this process.

    Spans are written to `store`, stdout and stderr to `log_file`. Requests need the bearer `token`. The exit code is 1
    even after SIGTERM, so that the supervisor starts another proxy for the calls that wait at the open socket.
    """
    with log_file.open("a", encoding="utf-8") as sink:
        os.dup2(sink.fileno(), 1)
        os.dup2(sink.fileno(), 2)
    asyncio.run(_answer_calls(sock, store, models, token))
    sys.exit(1)


async def _answer_calls(sock: socket.socket, store: StoreAddress, models: Sequence[ServedModel], token: str) -> None:
    """Answer requests at the listening socket `sock` until SIGTERM."""
    calls, exporter = PolicyCalls(models), SpanExporter(store)

    async def complete(request: Request) -> Response:
        with ends_without_memory():  # the supervisor replaces the proxy
            started = time.time()
            answer = await calls.answer(await request.body())
            number = request.headers.get(SEQUENCE_HEADER)
            # Failed calls need a span too, because a gap in the sequence ids counts as a lost span.
            span = make_span(
                "raw_gen_ai_request",
                {} if answer.reply is None else _attributes(answer.reply, request.headers.get(ROLE_HEADER)),
                rollout_id=request.path_params["rollout"],
                attempt_id=request.path_params["attempt"],
                sequence_id=None if number is None else int(number),
                seconds=(started, time.time()),
            )
            exporter.send([span])
            return Response(answer.body, answer.status, media_type="application/json")

    async def health(_request: Request) -> Response:
        return Response()

    paths = (f"{_ROLLOUT}/chat/completions", f"{_ROLLOUT}/v1/chat/completions")
    app = Starlette(routes=[Route(HEALTH, health), *(Route(path, complete, methods=["POST"]) for path in paths)])
    server = uvicorn_server(app, token, open_paths={HEALTH}, log_level="info")
    # Not serve(), because serve() also handles SIGINT, which only the parent process handles.
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, setattr, server, "should_exit", True)
    try:
        await server._serve(sockets=[sock])
    finally:
        await calls.close()


def _attributes(reply: Mapping[str, Any], role: str | None) -> dict[str, str]:
    """Return the span attributes for a model server's `reply`: its token ids and the agent's role."""
    kept = [name for name in ("id", *_FOR_SPANS) if name in reply]
    if "response_token_ids" not in reply and _CHOICES in reply:
        kept.append(_CHOICES)
    attributes = {PREFIX + name: _text(reply[name]) for name in kept}
    return attributes if role is None else attributes | {ROLE_ATTRIBUTE: role}


def _text(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value)
