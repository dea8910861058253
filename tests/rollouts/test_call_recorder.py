"""The calls of a rollout are recorded with their token ids, and a broken path to the model is named."""

from __future__ import annotations

from typing import Any

import agentlightning as agl
import pytest

from sql_agent.agent.rollout import shared_client
from sql_agent.errors import PreflightError
from sql_agent.rollouts.call_recorder import CallRecorder, check_call, rollout_spans
from sql_agent.rollouts.finished_rollout import read_record, read_turns
from sql_agent.system.sockets import free_port
from tests.support.judge_server import completion, serving
from tests.support.records import record

OURS = {
    "prompt_token_ids": [1, 2],
    "response_token_ids": [[3]],
    "response_logprobs": [-0.5],
    "response_versions": [4, 5],
}


def of_vllm() -> dict[str, Any]:
    """A reply of vLLM itself, which has the response's ids in its choice."""
    reply = completion("hello")
    reply["choices"][0]["token_ids"] = [7, 8]
    return reply | {"prompt_token_ids": [6]}


async def recorded(*replies: dict[str, Any]) -> CallRecorder:
    """The recorder after one call of rollout `one` for each of `replies`, and one call of no rollout."""
    recorder = CallRecorder()
    with serving() as server:
        server.script = [*replies, completion("of no rollout")]
        async with shared_client(direct=True, on_response=recorder) as client:
            for number, _ in enumerate(replies):
                headers = {"x-agent-role": f"role-{number}"} if number else {}
                url = f"{server.url}/rollout/one/attempt/a/v1/chat/completions"
                await client.post(url, json={}, headers=headers)
            await client.post(f"{server.url}/v1/chat/completions", json={})
    return recorder


async def test_calls_become_turns_with_their_numbers_and_failed_ones_leave_no_gap() -> None:
    recorder = await recorded(completion("x") | OURS, {"error": {"message": "too long"}}, of_vllm(), completion("x"))
    calls = recorder.pop("one")
    assert recorder.pop("one") == []
    assert all(call.end >= call.start > 0 for call in calls)
    spans = rollout_spans(calls, record(7, judge=0.5), rollout_id="one", attempt_id="a")
    assert [span.sequence_id for span in spans] == [1, 2, 3, 4]
    stored = [agl.Span.model_validate_json(span.model_dump_json()) for span in spans]
    ours, vllm = read_turns(stored, "role-1")
    assert (ours.prompt_ids, ours.response_ids, ours.logprobs, ours.versions) == ((1, 2), (3,), (-0.5,), (4, 5))
    assert (vllm.prompt_ids, vllm.response_ids, vllm.logprobs, vllm.versions) == ((6,), (7, 8), None, None)
    assert (ours.is_trained, vllm.is_trained) == (True, False), "a call without a role is trained"
    assert read_record(stored) == record(7, judge=0.5)


@pytest.mark.parametrize(("roles", "trained"), [(".*", True), ("role-2", True), ("role", False), ("role-22", False)])
async def test_only_the_roles_that_the_expression_matches_as_a_whole_are_trained(roles: str, trained: bool) -> None:
    calls = (await recorded(completion("x") | OURS, of_vllm(), of_vllm())).pop("one")
    spans = rollout_spans(calls, record(7, judge=0.5), rollout_id="one", attempt_id="a")
    assert read_turns(spans, roles)[2].is_trained is trained


@pytest.mark.parametrize(
    ("reply", "said", "hint"),
    [
        (completion("hello"), "returns no token ids", "prompt_token_ids"),
        ({"error": {"message": "the model's maximum context length is 10"}}, "length is 10", "local.max_context"),
    ],
)
async def test_a_server_that_cannot_serve_a_policy_is_named_with_the_remedy(reply: Any, said: str, hint: str) -> None:
    with serving() as server:
        server.default = reply
        with pytest.raises(PreflightError, match=said) as caught:
            await check_call(agl.ProxyLLM(endpoint=server.url, model="m"))
    assert hint in (caught.value.hint or "")


async def test_a_proxy_that_is_down_is_named() -> None:
    with pytest.raises(PreflightError, match="did not answer"):
        await check_call(agl.ProxyLLM(endpoint=f"http://127.0.0.1:{free_port()}", model="m"))
