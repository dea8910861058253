"""Calls go to the policy as litellm would send them, and its numbers stay with the proxy."""

from __future__ import annotations

import copy
import json
from unittest.mock import Mock

import aiohttp
import pytest
from agents import function_tool
from litellm.llms.hosted_vllm.chat.transformation import HostedVLLMChatConfig

from sql_agent.rollouts.llm_proxy import PolicyCalls, ServedModel
from tests.support.judge_server import completion, serving
from tests.support.processes import free_port

MESSAGES = [
    {"role": "user", "content": "?"},
    {"role": "assistant", "content": None, "tool_calls": [{"id": "1", "function": {"name": "f", "arguments": "{}"}}]},
    {"role": "tool", "tool_call_id": "1", "content": "{}"},
]


@function_tool
def query(sql: str) -> str:
    """Run one SELECT."""
    return sql


TOOLS = [
    {"type": "function", "function": {"name": "f", "strict": True, "parameters": query.params_json_schema}},
    {"type": "function", "function": {"name": "g", "parameters": {"additionalProperties": True, "enum": ["strict"]}}},
]


def call(**changes: object) -> bytes:
    return json.dumps({"model": "policy-0", "messages": MESSAGES, "tools": TOOLS, "max_tokens": 7} | changes).encode()


async def test_a_call_reaches_the_policy_as_litellm_sends_it_and_the_agent_gets_the_reply_without_the_numbers() -> None:
    ids = {"prompt_token_ids": [1, 2], "response_token_ids": [[3]], "response_logprobs": [-0.5]}
    with serving() as policy:
        policy.default = completion("hello") | ids
        calls = PolicyCalls([ServedModel("policy-0", f"{policy.url}/v1")])
        answer = await calls.answer(call())
        await calls.close()
    (sent,) = policy.requests
    tools = HostedVLLMChatConfig().map_openai_params({"tools": copy.deepcopy(TOOLS)}, {}, "policy", drop_params=False)
    assert sent == {"model": "policy", "messages": MESSAGES, "max_tokens": 7, "return_token_ids": True} | tools
    assert (answer.status, json.loads(answer.body)) == (200, completion("hello"))
    assert answer.reply == completion("hello") | ids


async def test_what_the_policy_refuses_and_what_cannot_be_sent_keep_a_status_of_their_own(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    with serving() as policy:
        policy.default = {"error": {"message": "too long"}}
        calls = PolicyCalls([ServedModel("policy-0", f"{policy.url}/v1")])
        refused = await calls.answer(call())
        unknown = await calls.answer(call(model="other"))
        broken = await calls.answer(b"no json")
        await calls.close()
    nowhere = PolicyCalls([ServedModel("policy-0", f"http://127.0.0.1:{free_port()}/v1")])
    down = await nowhere.answer(call())
    monkeypatch.setattr(aiohttp.ClientSession, "post", Mock(side_effect=RuntimeError("the handler is closed")))
    lost = await nowhere.answer(call())
    await nowhere.close()
    assert (refused.status, json.loads(refused.body)["error"]["message"], refused.reply) == (400, "too long", None)
    assert [answer.status for answer in (unknown, broken, down, lost)] == [400, 400, 502, 502]
    assert b"policy-0" in unknown.body and b"did not answer" in down.body
