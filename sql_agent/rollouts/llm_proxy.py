"""The LLM proxy between agents and policy: serve it, forward model calls, and write their token ids to the store."""

from __future__ import annotations

import asyncio
import json
import os
import re
import signal
import socket
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import Any

import agentlightning as agl
import aiohttp
from agentlightning.llm_proxy import get_active_llm_proxy
from agentlightning.utils.server_launcher import PythonServerLauncherArgs
from litellm.integrations.custom_logger import CustomLogger
from pydantic_core import from_json, to_json
from starlette.datastructures import Headers
from starlette.requests import Request
from starlette.responses import Response
from starlette.types import ASGIApp, Receive, Scope, Send

from sql_agent.agent.workflows import ROLE_HEADER
from sql_agent.config.endpoints import NO_API_KEY, plain_schema
from sql_agent.rollouts.run_role import StoreAddress
from sql_agent.rollouts.spans import PREFIX, ROLE_ATTRIBUTE, SEQUENCE_HEADER, SpanExporter, SpanOwner, make_span
from sql_agent.rollouts.store import StoreClient
from sql_agent.system.resources import ends_without_memory
from sql_agent.system.servers import bearer, uvicorn_server

_HEALTH = "/health/liveliness"  # litellm's other health endpoints call the model
_CALL = "raw_gen_ai_request"
# Keys of a model server's reply that the agent does not get: only spans need these keys, which are most of the bytes.
_FOR_SPANS = ("prompt_token_ids", "response_token_ids", "response_logprobs", "response_versions", "response_forced")
_PATH = re.compile(r"/rollout/([^/]+)/attempt/([^/]+)(/.*)?")
_PATHS = ("/v1/chat/completions", "/chat/completions")
_CONNECT_S = 10.0


@dataclass(frozen=True)
class ServedModel:
    """A model behind the proxy.

    Callers use the model name `name`; the server at `base_url`, which ends in /v1, knows the model as `model`.
    `has_token_ids` is whether the server can return token ids.
    """

    name: str
    base_url: str
    model: str = "policy"
    api_key: str = field(default=NO_API_KEY, repr=False)
    has_token_ids: bool = True


class LocalLlmProxy(agl.LLMProxy):  # type: ignore[misc]
    """LLM proxy at 127.0.0.1:`port` that forwards calls to `models` and writes a span of each call to `store`.

    Spans have token ids if the servers of all models return token ids. Requests need the bearer `token`.
    A process can have only one proxy, because litellm's proxy is a global variable.
    """

    def __init__(self, port: int, store: agl.LightningStore, models: Sequence[ServedModel], *, token: str) -> None:
        with_token_ids = all(model.has_token_ids for model in models)
        super().__init__(
            model_list=[_model_entry(model, index) for index, model in enumerate(models)],
            store=store,
            launcher_args=PythonServerLauncherArgs(
                host="127.0.0.1",  # agent-lightning's default is every interface
                access_host="127.0.0.1",
                port=port,
                healthcheck_url=_HEALTH,
            ),
            middlewares=[RolloutPath],
            callbacks=[*(["return_token_ids"] if with_token_ids else []), TokenIdRecorder],
        )
        self._token = token
        # Servers that return token ids are our own and need no litellm, which adapts calls to other servers.
        self.policy_calls = PolicyCalls(models) if with_token_ids else None
        self.exporter = SpanExporter()

    async def serve(self, sock: socket.socket) -> None:
        async with self._serve_context():
            app = self.server_launcher.app
            server = uvicorn_server(app, self._token, open_paths={_HEALTH}, lifespan="auto", log_level="info")
            # Not serve(), because serve() also handles SIGINT, which only the parent process handles.
            asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, setattr, server, "should_exit", True)
            try:
                await server._serve(sockets=[sock])
            finally:
                if self.policy_calls is not None:
                    await self.policy_calls.close()


async def check_health(address: str, timeout_s: float) -> None:
    """Raise ClientError, OSError or TimeoutError unless the proxy at the URL `address` answers in time."""
    timeout = aiohttp.ClientTimeout(total=timeout_s)
    async with aiohttp.ClientSession(timeout=timeout) as session, session.get(f"{address}{_HEALTH}") as response:
        response.raise_for_status()


def serve_proxy(
    sock: socket.socket, store: StoreAddress, models: Sequence[ServedModel], log_file: Path, token: str
) -> None:
    """Run an LLM proxy for `models` at the listening socket `sock` until SIGTERM, then exit with code 1.

    Spans are written to `store`, stdout and stderr to `log_file`. Requests need the bearer `token`. The exit code makes
    the supervisor start another proxy for the calls that wait at the open socket.
    """
    with log_file.open("a", encoding="utf-8") as sink:
        os.dup2(sink.fileno(), 1)
        os.dup2(sink.fileno(), 2)
    os.environ.pop("DATABASE_URL", None)  # litellm would try to use this database as its own, and fail to start
    proxy = LocalLlmProxy(sock.getsockname()[1], StoreClient(store), models, token=token)
    asyncio.run(proxy.serve(sock))
    sys.exit(1)


def _model_entry(model: ServedModel, index: int) -> dict[str, Any]:
    """Return litellm's configuration of `model`, in which the API key is the name of an environment variable.

    agent-lightning writes the configuration to a temporary file, which remains on the disk when the proxy is killed.
    """
    variable = f"SQL_AGENT_PROXY_KEY_{index}"
    os.environ[variable] = model.api_key
    # The prefix hosted_vllm/ makes agent-lightning's proxy record token ids.
    parameters = {
        "model": f"hosted_vllm/{model.model}",
        "api_base": model.base_url,
        "api_key": f"os.environ/{variable}",
    }
    return {"model_name": model.name, "litellm_params": parameters}


class RolloutPath:
    """ASGI middleware that moves the ids of rollout and attempt from the path of a call into headers.

    A call without a sequence id gets a new sequence id from the store. Chat completions are answered by `policy_calls`
    if the proxy has it, else by litellm. This class replaces two middlewares of agent-lightning, whose queues and
    asyncio tasks took a third of a call's time.
    """

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        with ends_without_memory():  # the supervisor replaces the proxy
            await self._call(scope, receive, send)

    async def _call(self, scope: Scope, receive: Receive, send: Send) -> None:
        match = _PATH.fullmatch(scope["path"]) if scope["type"] == "http" else None
        if match is not None:
            rollout_id, attempt_id, path = match[1], match[2], match[3] or "/"
            given = Headers(scope=scope).get(SEQUENCE_HEADER)
            proxy = _proxy()
            number = int(given) if given else await proxy.get_store().get_next_span_sequence_id(rollout_id, attempt_id)
            policy: PolicyCalls | None = proxy.policy_calls
            if policy is not None and path in _PATHS:
                started, request = time.time(), Request(scope, receive)
                answer = await policy.answer(await request.body())
                attributes = {} if answer.reply is None else _attributes(answer.reply, request.headers.get(ROLE_HEADER))
                _send_span(SpanOwner(rollout_id, attempt_id, number), attributes, started, time.time())
                await Response(answer.body, answer.status, media_type="application/json")(scope, receive, send)
                return
            named = {"x-rollout-id": rollout_id, "x-attempt-id": attempt_id, SEQUENCE_HEADER: str(number)}
            headers = [*scope["headers"], *((key.encode(), value.encode()) for key, value in named.items())]
            scope = {**scope, "path": path, "raw_path": path.encode(), "headers": headers}
        await self._app(scope, receive, send)


def _send_span(owner: SpanOwner, attributes: dict[str, str], start: float, end: float) -> None:
    """Queue the span of a model call for the store.

    A failed call has a span without `attributes`, because a gap in the sequence ids counts as a lost span.
    """
    proxy = _proxy()
    store, span = proxy.get_store(), make_span(_CALL, attributes, owner, start, end)
    proxy.exporter.send(store.otlp_traces_endpoint(), [span], token=store.token)


class TokenIdRecorder(CustomLogger):  # type: ignore[misc]
    """Callback of litellm that writes one span for each call, with the agent's role and the token ids.

    agent-lightning's own callback takes longer than the call itself: it writes about six spans per call, each with the
    whole conversation, and posts them one call at a time from the event loop that answers calls.
    """

    async def async_log_success_event(
        self, kwargs: dict[str, Any], response_obj: Any, start_time: datetime, end_time: datetime
    ) -> None:
        headers = kwargs["litellm_params"]["proxy_server_request"]["headers"]
        attributes = _attributes(json.loads(kwargs["original_response"]), headers.get(ROLE_HEADER))
        self._send(headers, attributes, start_time.timestamp(), end_time.timestamp())

    async def async_post_call_failure_hook(self, request_data: dict[str, Any], **_: Any) -> None:
        now = time.time()
        self._send(request_data["proxy_server_request"]["headers"], {}, now, now)

    def _send(self, headers: Mapping[str, str], attributes: dict[str, str], start: float, end: float) -> None:
        if "x-rollout-id" in headers:  # otherwise it is no call of a rollout
            owner = SpanOwner(headers["x-rollout-id"], headers["x-attempt-id"], int(headers[SEQUENCE_HEADER]))
            _send_span(owner, attributes, start, end)


def _proxy() -> Any:
    return get_active_llm_proxy()


def _attributes(reply: Mapping[str, Any], role: str | None) -> dict[str, str]:
    """Return the attributes of a call's span: the token ids in the model server's `reply`, and the agent's `role`."""
    # vLLM itself returns the response ids in "choices".
    kept = ("id", *_FOR_SPANS) if "response_token_ids" in reply else ("id", *_FOR_SPANS, "choices")
    values = {PREFIX + name: reply[name] for name in kept if name in reply}
    attributes = {name: value if isinstance(value, str) else json.dumps(value) for name, value in values.items()}
    return attributes if role is None else attributes | {ROLE_ATTRIBUTE: role}


@dataclass(frozen=True)
class Answer:
    """The HTTP `status` and `body` for the caller, and the full reply of the model server (None: the call failed)."""

    status: int
    body: bytes
    reply: Mapping[str, Any] | None


class PolicyCalls:
    """Forwards calls to the servers of `models` without litellm, which takes ten times the processor time."""

    def __init__(self, models: Sequence[ServedModel]) -> None:
        self._models = {model.name: model for model in models}
        self._session: aiohttp.ClientSession | None = None

    async def close(self) -> None:
        if self._session is not None:
            await self._session.close()

    async def answer(self, body: bytes) -> Answer:
        """Forward the JSON call `body` to its model's server; status 400 is a malformed call, 502 a missing answer."""
        try:
            call = from_json(body)
            model = self._models[call["model"]]
        except (ValueError, KeyError, TypeError) as error:
            return _failed(400, f"the call names none of the models {', '.join(self._models)}: {error!r}")
        call |= {"model": model.model, "return_token_ids": True}
        if "tools" in call:
            call["tools"] = plain_schema(call["tools"])
        if self._session is None:
            self._session = aiohttp.ClientSession(
                connector=aiohttp.TCPConnector(limit=0),
                timeout=aiohttp.ClientTimeout(total=None, sock_connect=_CONNECT_S),
                headers={"Content-Type": "application/json"},
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
