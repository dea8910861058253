"""Record the token ids of each call of the LLM proxy in the store, under the rollout that made the call."""

from __future__ import annotations

import json
import logging
import re
import time
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from agentlightning.llm_proxy import get_active_llm_proxy
from litellm.integrations.custom_logger import CustomLogger
from starlette.datastructures import Headers
from starlette.requests import Request
from starlette.responses import Response
from starlette.types import ASGIApp, Receive, Scope, Send

from sql_agent.agent.session import ROLE_HEADER
from sql_agent.rollouts.adapter import ROLE_ATTRIBUTE
from sql_agent.rollouts.call_numbers import SEQUENCE_HEADER
from sql_agent.rollouts.policy_calls import PATHS, PolicyCalls
from sql_agent.rollouts.span_exporter import SpanExporter, make_span
from sql_agent.system.memory import ends_without_memory

logger = logging.getLogger(__name__)

_CALL = "raw_gen_ai_request"
_PREFIX = "llm.hosted_vllm."
_KEPT = ("id", "prompt_token_ids", "response_token_ids", "response_logprobs", "response_versions")
_CHOICES = "choices"  # where vLLM itself puts the response ids
_PATH = re.compile(r"/rollout/([^/]+)/attempt/([^/]+)(/.*)?")


class RolloutPath:
    """Moves the rollout's ids from a call's path into headers, and gives the call a sequence id if its maker did not.

    It replaces two middlewares of agent-lightning, the one that does the same and the one for streams, because they
    pass each request through queues and tasks, which took a third of a call's time. Where the proxy has `policy_calls`,
    these answer chat completions instead of litellm.
    """

    def __init__(self, app: ASGIApp) -> None:
        self._app = app
        self._exporter = SpanExporter()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        with ends_without_memory():  # then another proxy takes its place
            await self._call(scope, receive, send)

    async def _call(self, scope: Scope, receive: Receive, send: Send) -> None:
        match = _PATH.fullmatch(scope["path"]) if scope["type"] == "http" else None
        if match is not None:
            rollout_id, attempt_id, path = match[1], match[2], match[3] or "/"
            given = Headers(scope=scope).get(SEQUENCE_HEADER)
            number = int(given) if given else await _store().get_next_span_sequence_id(rollout_id, attempt_id)
            policy: PolicyCalls | None = get_active_llm_proxy().policy_calls
            if policy is not None and path in PATHS:
                await self._forward(policy, scope, receive, send, _Call(rollout_id, attempt_id, number))
                return
            named = {"x-rollout-id": rollout_id, "x-attempt-id": attempt_id, SEQUENCE_HEADER: str(number)}
            headers = [*scope["headers"], *((key.encode(), value.encode()) for key, value in named.items())]
            scope = {**scope, "path": path, "raw_path": path.encode(), "headers": headers}
        await self._app(scope, receive, send)

    async def _forward(self, policy: PolicyCalls, scope: Scope, receive: Receive, send: Send, call: _Call) -> None:
        """Answer a call of a rollout with the policy's reply, and record its token ids."""
        started = time.time()
        request = Request(scope, receive)
        answer = await policy.answer(await request.body())
        attributes = {} if answer.reply is None else _attributes(answer.reply, request.headers.get(ROLE_HEADER))
        call.send(self._exporter, attributes, started, time.time())
        await Response(answer.body, answer.status, media_type="application/json")(scope, receive, send)


@dataclass(frozen=True)
class _Call:
    """Names a call of the model by its rollout and its number there."""

    rollout_id: str
    attempt_id: str
    number: int

    def send(self, exporter: SpanExporter, attributes: dict[str, str], start: float, end: float) -> None:
        """Queue the span of the call; a failed one has no attributes.

        Failed calls are recorded too, because a gap in the sequence ids is taken for a lost span.
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
    """Writes one span for each call, with only what a triplet needs and the role, as a callback of litellm.

    It replaces agent-lightning's own callback, because that one writes about six spans for each call, which repeat the
    whole conversation, and posts them one call at a time from the event loop that also serves the calls: this took
    longer than the call itself.
    """

    def __init__(self) -> None:
        super().__init__()
        self._exporter = SpanExporter()

    async def async_log_success_event(
        self, kwargs: dict[str, Any], response_obj: Any, start_time: datetime, end_time: datetime
    ) -> None:
        """Record the token ids of a call that was answered; times are those of litellm."""
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
        """Record a call that failed."""
        now = datetime.now().timestamp()
        self._send(request_data["proxy_server_request"]["headers"], {}, now, now)

    def _send(self, headers: Mapping[str, str], attributes: dict[str, str], start: float, end: float) -> None:
        if "x-rollout-id" not in headers:
            return  # a call that belongs to no rollout
        call = _Call(headers["x-rollout-id"], headers["x-attempt-id"], int(headers[SEQUENCE_HEADER]))
        call.send(self._exporter, attributes, start, end)


def _store() -> Any:
    return get_active_llm_proxy().get_store()


def _attributes(reply: Mapping[str, Any], role: str | None) -> dict[str, str]:
    """Return the attributes of the span of a call that was answered with `reply` by the server itself."""
    kept = [name for name in _KEPT if name in reply]
    if "response_token_ids" not in reply and _CHOICES in reply:
        kept.append(_CHOICES)
    attributes = {_PREFIX + name: _text(reply[name]) for name in kept}
    return attributes if role is None else attributes | {ROLE_ATTRIBUTE: role}


def _text(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value)
