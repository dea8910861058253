"""Record the model's replies during a rollout, write them as spans, and check one call before the first rollout."""

from __future__ import annotations

import re
import time
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import agentlightning as agl
import httpx2
import orjson  # three to ten times faster than json on lists of numbers
from agentlightning.semconv import AGL_OBJECT, LightningSpanAttributes
from openai import AsyncOpenAI, BadRequestError, OpenAIError
from pydantic_core import from_json

from sql_agent.agent.rollout import shared_client
from sql_agent.agent.session import ROLE_HEADER
from sql_agent.config.endpoints import NO_API_KEY
from sql_agent.errors import PreflightError
from sql_agent.schemas import RolloutRecord

CALL_SPAN = "raw_gen_ai_request"
_PREFIX = "llm.hosted_vllm."  # the names of agent-lightning's own LLM proxy, which its tools read
PROMPT_IDS, RESPONSE_IDS = f"{_PREFIX}prompt_token_ids", f"{_PREFIX}response_token_ids"
LOGPROBS, VERSIONS = f"{_PREFIX}response_logprobs", f"{_PREFIX}response_versions"
ROLE = "sql_agent.role"
RECORD = LightningSpanAttributes.OBJECT_JSON.value
_REWARD = f"{LightningSpanAttributes.REWARD.value}.0"  # as agentlightning.emit_reward names a reward's attributes

_CALL_TIMEOUT_S = 60.0
_RETRIES = 2  # of a call whose proxy died and was replaced meanwhile
_ROLLOUT = re.compile(r".*/rollout/([^/]+)/attempt/")  # in the path of an LLM proxy


@dataclass(frozen=True)
class ModelCall:
    """One call that the model answered: its whole reply, the agent's role, and its start and end in Unix time."""

    reply: dict[str, Any]
    role: str | None
    start: float
    end: float

    @property
    def prompt_ids(self) -> list[int] | None:
        """Return the token ids of the prompt; None when the server does not return them."""
        return self.reply.get("prompt_token_ids")

    @property
    def response_ids(self) -> list[int] | None:
        """Return the sampled token ids, from the place of this project's server or else of vLLM's."""
        if "response_token_ids" in self.reply:
            ids: list[int] = self.reply["response_token_ids"][0]
            return ids
        return self.reply["choices"][0].get("token_ids") if self.reply.get("choices") else None


class CallRecorder:
    """Records the answered calls of each rollout; a response hook of an HTTP client."""

    def __init__(self) -> None:
        self._calls: defaultdict[str, list[ModelCall]] = defaultdict(list)  # by rollout

    async def __call__(self, response: httpx2.Response) -> None:
        """Record the reply in `response`, unless the request failed or belongs to no rollout."""
        match = _ROLLOUT.match(response.request.url.path)
        if match and response.status_code == httpx2.codes.OK:
            reply, end = from_json(await response.aread()), time.time()
            start = end - response.elapsed.total_seconds()
            self._calls[match[1]].append(ModelCall(reply, response.request.headers.get(ROLE_HEADER), start, end))

    def pop(self, rollout_id: str) -> list[ModelCall]:
        """Return the calls of an ended rollout in order, and forget them."""
        return self._calls.pop(rollout_id, [])


def rollout_spans(
    calls: Sequence[ModelCall], record: RolloutRecord, *, rollout_id: str, attempt_id: str
) -> list[agl.Span]:
    """Return one span for each of `calls`, and one for `record` and, unless the rollout is dropped, its reward."""
    owner: dict[str, Any] = {"rollout_id": rollout_id, "attempt_id": attempt_id}
    spans = [
        agl.Span.from_attributes(
            name=CALL_SPAN,
            attributes=_attributes(call),
            sequence_id=number,
            start_time=call.start,
            end_time=call.end,
            **owner,
        )
        for number, call in enumerate(calls, 1)
    ]
    attributes: dict[str, Any] = {RECORD: record.model_dump_json()}
    if record.reward:
        attributes |= {f"{_REWARD}.name": "primary", f"{_REWARD}.value": record.reward.total}
    last = len(spans) + 1
    return [*spans, agl.Span.from_attributes(name=AGL_OBJECT, attributes=attributes, sequence_id=last, **owner)]


def _attributes(call: ModelCall) -> dict[str, str]:
    attributes = {f"{_PREFIX}id": str(call.reply.get("id", ""))}
    if call.role is not None:
        attributes[ROLE] = call.role
    numbers = {
        PROMPT_IDS: call.prompt_ids,
        RESPONSE_IDS: None if call.response_ids is None else [call.response_ids],
        LOGPROBS: call.reply.get("response_logprobs"),
        VERSIONS: call.reply.get("response_versions"),
    }
    return attributes | {name: orjson.dumps(value).decode() for name, value in numbers.items() if value is not None}


async def check_call(route: agl.ProxyLLM) -> ModelCall:
    """Make one real call to the policy over `route` and return it.

    Raises PreflightError, which names the part of the path that failed, when the model does not answer or the reply
    lacks the prompt's or the response's token ids.
    """
    recorder = CallRecorder()
    url = route.get_base_url("preflight", "1")
    try:
        async with AsyncOpenAI(
            base_url=url,
            api_key=route.api_key or NO_API_KEY,
            timeout=_CALL_TIMEOUT_S,
            max_retries=_RETRIES,
            http_client=shared_client(direct=True, on_response=recorder),
        ) as client:
            hello: Any = [{"role": "user", "content": "Hello"}]
            await client.chat.completions.create(model=route.model, messages=hello, max_tokens=4)
    except BadRequestError as error:
        raise PreflightError(
            f"the model refuses a call of one word: {error}",
            hint="where that is too long for its context, raise local.max_context",
        ) from error
    except OpenAIError as error:
        raise PreflightError(
            f"the LLM proxy at {url} did not answer: {type(error).__name__}: {error}",
            hint="run `python utils/check_install.py`; is the model server behind the proxy up?",
        ) from error
    (call,) = recorder.pop("preflight")
    if not call.prompt_ids or not call.response_ids:
        raise PreflightError(
            "the model server returns no token ids",
            hint="its replies must contain prompt_token_ids and token_ids, as vLLM's do for return_token_ids",
        )
    return call
