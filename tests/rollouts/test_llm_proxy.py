"""Calls reach the model server as the policy was trained to read them; a proxy that dies is replaced."""

from __future__ import annotations

import asyncio
import copy
import json
import os
import signal
import tempfile
from collections.abc import Iterator
from pathlib import Path
from unittest.mock import Mock

import agentlightning as agl
import aiohttp
import httpx
import pytest
from agents import function_tool
from litellm.llms.hosted_vllm.chat.transformation import HostedVLLMChatConfig

from sql_agent.config.settings import load_settings
from sql_agent.errors import PreflightError
from sql_agent.rollouts.call_recorder import check_call
from sql_agent.rollouts.llm_proxy import LlmProxy, ServedModel
from sql_agent.rollouts.processes import RunProcesses
from sql_agent.rollouts.supervisor import Ended
from sql_agent.system.sockets import free_port
from tests.support.judge_server import completion, serving
from tests.support.process_tree import descendants

MESSAGES = [
    {"role": "user", "content": "?"},
    {"role": "assistant", "content": None, "tool_calls": [{"id": "1", "function": {"name": "f", "arguments": "{}"}}]},
    {"role": "tool", "tool_call_id": "1", "content": "{}"},
]
IDS = {"prompt_token_ids": [1, 2], "response_token_ids": [[3]], "response_logprobs": [-0.5]}


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


@pytest.mark.parametrize("has_token_ids", [True, False])
async def test_a_call_reaches_the_policy_as_litellm_sends_it_and_its_answer_comes_back(has_token_ids: bool) -> None:
    with serving() as policy:
        policy.default = completion("hello") | IDS
        proxy = LlmProxy([ServedModel("policy-0", f"{policy.url}/v1", has_token_ids=has_token_ids)])
        answer = await proxy.forward(call())
        await proxy.close()
    (sent,) = policy.requests
    tools = HostedVLLMChatConfig().map_openai_params({"tools": copy.deepcopy(TOOLS)}, {}, "policy", drop_params=False)
    asked_for = {"return_token_ids": True} if has_token_ids else {}
    assert sent == {"model": "policy", "messages": MESSAGES, "max_tokens": 7} | asked_for | tools
    assert (answer.status_code, json.loads(bytes(answer.body))) == (200, completion("hello") | IDS)


async def test_a_call_that_the_policy_refuses_or_that_cannot_be_sent_gets_a_status_that_tells_which(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    with serving() as policy:
        policy.default = {"error": {"message": "too long"}}
        proxy = LlmProxy([ServedModel("policy-0", f"{policy.url}/v1")])
        refused = await proxy.forward(call())
        unknown = await proxy.forward(call(model="other"))
        broken = await proxy.forward(b"no json")
        await proxy.close()
    nowhere = LlmProxy([ServedModel("policy-0", f"http://127.0.0.1:{free_port()}/v1")])
    down = await nowhere.forward(call())
    monkeypatch.setattr(aiohttp.ClientSession, "post", Mock(side_effect=RuntimeError("the handler is closed")))
    lost = await nowhere.forward(call())
    await nowhere.close()
    assert (refused.status_code, json.loads(bytes(refused.body))["error"]["message"]) == (400, "too long")
    assert [answer.status_code for answer in (unknown, broken, down, lost)] == [400, 400, 502, 502]
    assert b"policy-0" in bytes(unknown.body) and b"did not answer" in bytes(down.body)


@pytest.fixture
def processes() -> Iterator[RunProcesses]:
    processes = RunProcesses(load_settings(), n_proxies=1)
    yield processes
    processes.stop()


def test_a_proxy_wants_its_token_keeps_the_policy_s_key_out_of_files_and_is_replaced_when_it_dies(
    processes: RunProcesses, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    temporary, log = tmp_path / "temporary", tmp_path / "proxy.log"
    temporary.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(temporary))
    monkeypatch.setenv("http_proxy", f"http://127.0.0.1:{free_port()}")  # which is for servers of others
    before = set(descendants(os.getpid()))

    async def ask(address: str) -> None:
        route = agl.ProxyLLM(endpoint=address, model="policy", api_key=processes.proxy_token)
        assert (await check_call(route)).response_ids == [3]
        async with httpx.AsyncClient(trust_env=False) as client:
            assert (await client.post(f"{address}/v1/chat/completions", json={})).status_code == 401

    async def run() -> None:
        seen: asyncio.Queue[Ended] = asyncio.Queue()
        processes.watch(seen.put_nowait)
        with serving() as policy:
            policy.default = completion("hello") | IDS
            models = [ServedModel("policy", f"{policy.url}/v1", api_key="secret-key")]
            (address,) = await processes.start_proxies(models, [log])
            await ask(address)
            assert policy.authorizations == ["Bearer secret-key"]
            (proxy,) = set(descendants(os.getpid())) - before - {processes._supervisor.pid}
            os.kill(proxy, signal.SIGTERM)
            assert await asyncio.wait_for(seen.get(), timeout=20) == Ended(
                "LLM proxy 0", proxy, "was killed by SIGTERM", replaced=True
            )
            await ask(address)
        with pytest.raises(PreflightError, match="did not answer"):
            await ask(address)
        processes.unwatch()

    asyncio.run(run())
    for path in [log, *temporary.rglob("*")]:
        for secret in (b"secret-key", processes.proxy_token.encode()):
            assert path.is_dir() or secret not in path.read_bytes()
