"""Forward the model calls of rollouts to the policy's servers, in a process that listens at one fixed address."""

from __future__ import annotations

import asyncio
import os
import socket
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import aiohttp
from pydantic_core import from_json, to_json
from starlette.requests import Request
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from sql_agent.config.endpoints import NO_API_KEY
from sql_agent.system.memory import ends_without_memory
from sql_agent.system.tokens import bearer
from sql_agent.system.web_server import uvicorn_server

HEALTH = "/health"
_CALLS = "/chat/completions"  # the end of a call's path; agent-lightning puts the rollout's ids before it
_CONNECT_S = 10.0


@dataclass(frozen=True)
class ServedModel:
    """A model that callers of the proxy name `name`, and its server at `base_url` (ending in /v1) names `model`.

    `has_token_ids` is false for a server that refuses a request for token ids.
    """

    name: str
    base_url: str
    model: str = "policy"
    api_key: str = field(default=NO_API_KEY, repr=False)
    has_token_ids: bool = True


class LlmProxy:
    """ASGI app that forwards chat completions to the servers of `models`."""

    def __init__(self, models: Sequence[ServedModel]) -> None:
        self._models = {model.name: model for model in models}
        self._session: aiohttp.ClientSession | None = None

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request. Without memory this process ends, so that the supervisor replaces the proxy."""
        with ends_without_memory():
            request = Request(scope, receive)
            if request.url.path == HEALTH:
                response = Response()
            elif request.url.path.endswith(_CALLS):
                response = await self.forward(await request.body())
            else:
                response = _error(404, f"this proxy has no {request.url.path}")
            await response(scope, receive, send)

    async def forward(self, body: bytes) -> Response:
        """Return the answer of the model server that the call `body` names; status 502 when the server is down."""
        try:
            call = from_json(body)
            model = self._models[call["model"]]
        except (ValueError, KeyError, TypeError) as error:
            return _error(400, f"not a call of a known model ({', '.join(self._models)}): {error!r}")
        call["model"] = model.model
        if model.has_token_ids:
            call["return_token_ids"] = True
        if "tools" in call:
            call["tools"] = _plain(call["tools"])
        if self._session is None:
            timeout = aiohttp.ClientTimeout(total=None, sock_connect=_CONNECT_S)
            self._session = aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=0), timeout=timeout)
        headers = {"Content-Type": "application/json"} | bearer(model.api_key)
        try:
            async with self._session.post(f"{model.base_url}{_CALLS}", data=to_json(call), headers=headers) as reply:
                return Response(await reply.read(), reply.status, media_type="application/json")
        except Exception as error:  # aiohttp lets a RuntimeError of uvloop through
            message = f"the model server at {model.base_url} did not answer: {type(error).__name__}: {error}"
            print(message, flush=True)
            return _error(502, message)

    async def close(self) -> None:
        """Close the connections to the model servers."""
        if self._session is not None:
            await self._session.close()


def serve_proxy(sock: socket.socket, models: Sequence[ServedModel], log_file: Path, token: str) -> None:
    """Serve `models` on the listening `sock` until a signal ends this process; append its output to `log_file`.

    Requests need the bearer `token`.
    """
    with log_file.open("a", encoding="utf-8") as sink:
        os.dup2(sink.fileno(), 1)
        os.dup2(sink.fileno(), 2)
    server = uvicorn_server(LlmProxy(models), token, open_paths={HEALTH})
    # Not run(), because that handles SIGINT, which is for the process that started this one.
    asyncio.run(server._serve(sockets=[sock]))


def _plain(schema: Any) -> Any:
    """Return a schema of tools without `strict` and `additionalProperties`: no policy was trained with these keys."""
    if isinstance(schema, Mapping):
        left_out = {"strict"} | ({"additionalProperties"} if schema.get("additionalProperties") is False else set())
        return {key: _plain(value) for key, value in schema.items() if key not in left_out}
    if isinstance(schema, list):
        return [_plain(item) for item in schema]
    return schema


def _error(status: int, message: str) -> Response:
    body = {"error": {"message": message, "type": "proxy", "code": status}}
    return Response(to_json(body), status, media_type="application/json")
