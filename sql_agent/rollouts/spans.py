"""Write the calls and the record of a rollout as spans of agent-lightning's store, and read them back."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

import agentlightning as agl
import orjson  # three to ten times faster than json on lists of numbers
from agentlightning.semconv import AGL_OBJECT, LightningSpanAttributes

from sql_agent.rollouts.call_recorder import ModelCall
from sql_agent.rollouts.trajectory import Turn
from sql_agent.schemas import RolloutRecord

_CALL = "raw_gen_ai_request"
_PREFIX = "llm.hosted_vllm."  # the names of agent-lightning's own LLM proxy, which its tools read
_PROMPT_IDS, _RESPONSE_IDS = f"{_PREFIX}prompt_token_ids", f"{_PREFIX}response_token_ids"
_LOGPROBS, _VERSIONS = f"{_PREFIX}response_logprobs", f"{_PREFIX}response_versions"
_ROLE = "sql_agent.role"
_RECORD = LightningSpanAttributes.OBJECT_JSON.value
_REWARD = f"{LightningSpanAttributes.REWARD.value}.0"  # as agentlightning.emit_reward names a reward's attributes


def rollout_spans(
    calls: Sequence[ModelCall], record: RolloutRecord, *, rollout_id: str, attempt_id: str
) -> list[agl.Span]:
    """Return one span for each of `calls`, and one for `record` and, unless the rollout is dropped, its reward."""
    owner: dict[str, Any] = {"rollout_id": rollout_id, "attempt_id": attempt_id}
    spans = [
        agl.Span.from_attributes(
            name=_CALL,
            attributes=_attributes(call),
            sequence_id=number,
            start_time=call.start,
            end_time=call.end,
            **owner,
        )
        for number, call in enumerate(calls, 1)
    ]
    attributes: dict[str, Any] = {_RECORD: record.model_dump_json()}
    if record.reward:
        attributes |= {f"{_REWARD}.name": "primary", f"{_REWARD}.value": record.reward.total}
    last = len(spans) + 1
    return [*spans, agl.Span.from_attributes(name=AGL_OBJECT, attributes=attributes, sequence_id=last, **owner)]


def _attributes(call: ModelCall) -> dict[str, str]:
    attributes = {f"{_PREFIX}id": str(call.reply.get("id", ""))}
    if call.role is not None:
        attributes[_ROLE] = call.role
    numbers = {
        _PROMPT_IDS: call.prompt_ids,
        _RESPONSE_IDS: None if call.response_ids is None else [call.response_ids],
        _LOGPROBS: call.reply.get("response_logprobs"),
        _VERSIONS: call.reply.get("response_versions"),
    }
    return attributes | {name: orjson.dumps(value).decode() for name, value in numbers.items() if value is not None}


def read_record(spans: Sequence[agl.Span]) -> RolloutRecord | None:
    """Return the record among the spans of one rollout; None without one."""
    found = next((span for span in spans if span.name == AGL_OBJECT), None)
    return None if found is None else RolloutRecord.model_validate_json(found.attributes[_RECORD])


def read_turns(spans: Sequence[agl.Span], train_roles: str) -> list[Turn]:
    """Return the turns among the spans of one rollout, in their order: one for each call with token ids.

    A turn is trained when it has no role, or when the regular expression `train_roles` matches the whole role.
    """
    turns = []
    for attributes in (span.attributes for span in spans if span.name == _CALL):
        if _PROMPT_IDS not in attributes or _RESPONSE_IDS not in attributes:
            continue  # a server that returns no token ids
        numbers = {name: orjson.loads(attributes[name]) for name in (_LOGPROBS, _VERSIONS) if name in attributes}
        role = attributes.get(_ROLE)
        turns.append(
            Turn(
                tuple(orjson.loads(attributes[_PROMPT_IDS])),
                tuple(orjson.loads(attributes[_RESPONSE_IDS])[0]),
                tuple(numbers[_LOGPROBS]) if _LOGPROBS in numbers else None,
                (numbers[_VERSIONS][0], numbers[_VERSIONS][1]) if _VERSIONS in numbers else None,
                is_trained=role is None or re.fullmatch(train_roles, role) is not None,
            )
        )
    return turns
