"""Middleware and litellm callback of the LLM proxy: forward model calls, and write their token ids to the store."""

from __future__ import annotations

import json
import re
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

import aiohttp
from agentlightning.llm_proxy import get_active_llm_proxy
from litellm.integrations.custom_logger import CustomLogger
from pydantic_core import from_json, to_json
from starlette.datastructures import Headers
from starlette.requests import Request
from starlette.responses import Response
from starlette.types import ASGIApp, Receive, Scope, Send

from sql_agent.agent.workflows import ROLE_HEADER
from sql_agent.config.endpoints import NO_API_KEY, plain_schema
from sql_agent.rollouts.spans import PREFIX, ROLE_ATTRIBUTE, SEQUENCE_HEADER, SpanExporter, make_span
from sql_agent.system.resources import ends_without_memory
from sql_agent.system.servers import bearer

_CALL = "raw_gen_ai_request"
# Keys of a reply that are written to the span only: they are most of the reply's bytes, and the agent ignores them.
_FOR_SPANS = ("prompt_token_ids", "response_token_ids", "response_logprobs", "response_versions", "response_forced")
_KEPT = ("id", *_FOR_SPANS)
_CHOICES = "choices"  # vLLM itself has the response ids in this key
_PATH = re.compile(r"/rollout/([^/]+)/attempt/([^/]+)(/.*)?")
_PATHS = ("/v1/chat/completions", "/chat/completions")
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


class RolloutPath:
    """ASGI middleware that moves the ids of rollout and attempt from the path into headers.

    A call without a sequence id gets one. If the proxy has `policy_calls`, these answer chat completions instead of
    litellm. The class replaces two middlewares of agent-lightning, for the same task and for streams: their queues and
    asyncio tasks took a third of a call's time.
    """

    def __init__(self, app: ASGIApp) -> None:
        self._app = app
        self._exporter = SpanExporter()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        with ends_without_memory():  # the supervisor replaces the proxy
            await self._call(scope, receive, send)

    async def _call(self, scope: Scope, receive: Receive, send: Send) -> None:
        match = _PATH.fullmatch(scope["path"]) if scope["type"] == "http" else None
        if match is not None:
            rollout_id, attempt_id, path = match[1], match[2], match[3] or "/"
            given = Headers(scope=scope).get(SEQUENCE_HEADER)
            number = int(given) if given else await _store().get_next_span_sequence_id(rollout_id, attempt_id)
            policy: PolicyCalls | None = get_active_llm_proxy().policy_calls
            if policy is not None and path in _PATHS:
                await self._forward(policy, scope, receive, send, _Call(rollout_id, attempt_id, number))
                return
            named = {"x-rollout-id": rollout_id, "x-attempt-id": attempt_id, SEQUENCE_HEADER: str(number)}
            headers = [*scope["headers"], *((key.encode(), value.encode()) for key, value in named.items())]
            scope = {**scope, "path": path, "raw_path": path.encode(), "headers": headers}
        await self._app(scope, receive, send)

    async def _forward(self, policy: PolicyCalls, scope: Scope, receive: Receive, send: Send, call: _Call) -> None:
        """Answer a model call with the policy's reply, and write the token ids to the store."""
        started = time.time()
        request = Request(scope, receive)
        answer = await policy.answer(await request.body())
        attributes = {} if answer.reply is None else _attributes(answer.reply, request.headers.get(ROLE_HEADER))
        call.send(self._exporter, attributes, started, time.time())
        await Response(answer.body, answer.status, media_type="application/json")(scope, receive, send)


@dataclass(frozen=True)
class _Call:
    """A model call; `number`, from 1 in each rollout, is the sequence id of the call's span."""

    rollout_id: str
    attempt_id: str
    number: int

    def send(self, exporter: SpanExporter, attributes: dict[str, str], start: float, end: float) -> None:
        """Queue the call's span for the store; `attributes` are empty for a failed call.

        Failed calls need a span too, because a gap in the sequence ids counts as a lost span.
        """
        span = make_span(
            _CALL,
            attributes,
            rollout_id=self.rollout_id,
            attempt_id=self.attempt_id,
            sequence_id=self.number,
            seconds=(start, end),
        )
        store = _store()
        exporter.send(store.otlp_traces_endpoint(), [span], token=store.token)


class TokenIdRecorder(CustomLogger):  # type: ignore[misc]
    """Callback of litellm that writes one span for each call, with the agent's role and the token ids.

    It replaces agent-lightning's callback, which takes longer than the call itself: about six spans per call, each
    with the whole conversation, posted for one call at a time from the event loop that answers calls.
    """

    def __init__(self) -> None:
        super().__init__()
        self._exporter = SpanExporter()

    async def async_log_success_event(
        self, kwargs: dict[str, Any], response_obj: Any, start_time: datetime, end_time: datetime
    ) -> None:
        """Write the span of a successful call."""
        headers = kwargs["litellm_params"]["proxy_server_request"]["headers"]
        attributes = _attributes(json.loads(kwargs["original_response"]), headers.get(ROLE_HEADER))
        self._send(headers, attributes, start_time.timestamp(), end_time.timestamp())

    async def async_post_call_failure_hook(
        self,
        request_data: dict[str, Any],
        original_exception: Exception,
        user_api_key_dict: Any,
        traceback_str: str | None = None,
    ) -> None:
        """Write the span of a failed call."""
        now = datetime.now().timestamp()
        self._send(request_data["proxy_server_request"]["headers"], {}, now, now)

    def _send(self, headers: Mapping[str, str], attributes: dict[str, str], start: float, end: float) -> None:
        if "x-rollout-id" not in headers:
            return  # not a call of a rollout
        call = _Call(headers["x-rollout-id"], headers["x-attempt-id"], int(headers[SEQUENCE_HEADER]))
        call.send(self._exporter, attributes, start, end)


def _store() -> Any:
    return get_active_llm_proxy().get_store()


def _attributes(reply: Mapping[str, Any], role: str | None) -> dict[str, str]:
    """Return the span attributes for a model server's `reply`: its token ids and the agent's role."""
    kept = [name for name in _KEPT if name in reply]
    if "response_token_ids" not in reply and _CHOICES in reply:
        kept.append(_CHOICES)
    attributes = {PREFIX + name: _text(reply[name]) for name in kept}
    return attributes if role is None else attributes | {ROLE_ATTRIBUTE: role}


def _text(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value)


@dataclass(frozen=True)
class Answer:
    """The response to the caller (`status`, `body`) and the model server's full reply, None for a failed call."""

    status: int
    body: bytes
    reply: Mapping[str, Any] | None


class PolicyCalls:
    """Forwards calls to the servers of `models`, without litellm.

    litellm takes ten times the processor time, to adapt calls to other kinds of servers.
    """

    def __init__(self, models: Sequence[ServedModel]) -> None:
        self._models = {model.name: model for model in models}
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
