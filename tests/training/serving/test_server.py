"""Whatever the model writes, the server answers, so that it is the model's turn and no fault of the infrastructure."""

from __future__ import annotations

import asyncio
import json
import threading
import time
from typing import Any

import httpx
import pytest

from sql_agent.training.policy.model import Policy
from sql_agent.training.serving.chat import ChatEncoder
from sql_agent.training.serving.server import Generation, Sampling, ServerThread, build_app

NAME = "query_database_by_sql"


class Says:
    """An engine that always samples `text`."""

    max_context = 100_000

    def __init__(self, tokenizer: Any, end_id: int, text: str) -> None:
        self._ids = (*tokenizer(text, add_special_tokens=False)["input_ids"], end_id)

    async def generate(self, prompt_ids: tuple[int, ...], sampling: Sampling, *, conversation: str) -> Generation:
        return Generation(self._ids, "stop")


@pytest.mark.parametrize(
    ("arguments", "called"),
    [
        (r'{"sql": "SELECT \'\ud83d\'"}'.replace(r"\'", "'"), "SELECT '?'"),
        ('{"sql": "SELECT 1", "x": ' + "[" * 5000 + "]" * 5000 + "}", None),
    ],
    ids=["half an emoji", "deeply nested"],
)
async def test_a_call_that_json_or_utf8_cannot_hold_is_answered_and_the_conversation_goes_on(
    policy: Policy, arguments: str, called: str | None
) -> None:
    text = f'<tool_call>{{"name": "{NAME}", "arguments": {arguments}}}</tool_call>'
    app = build_app(ChatEncoder(policy.tokenizer, policy.end_id), Says(policy.tokenizer, policy.end_id, text))
    messages: list[dict[str, Any]] = [{"role": "user", "content": "Hello"}]
    async with httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://policy") as client:
        for _ in range(2):
            answer = await client.post("/v1/chat/completions", json={"messages": messages, "max_tokens": 8})
            assert answer.status_code == 200, answer.text
            messages += [answer.json()["choices"][0]["message"], {"role": "user", "content": "and then?"}]
    calls = messages[1].get("tool_calls")
    assert (json.loads(calls[0]["function"]["arguments"])["sql"] if calls else None) == called


class NeverEnds:
    """An engine that samples until it is cancelled."""

    max_context = 100_000

    def __init__(self) -> None:
        self.samples = threading.Event()
        self.was_cancelled = threading.Event()

    async def generate(self, prompt_ids: tuple[int, ...], sampling: Sampling, *, conversation: str) -> Generation:
        self.samples.set()
        try:
            await asyncio.sleep(60)
        except asyncio.CancelledError:
            self.was_cancelled.set()
            raise
        raise AssertionError


async def test_what_is_sampled_when_serving_ends_is_given_up_at_once_and_without_a_traceback(
    policy: Policy, capfd: pytest.CaptureFixture[str]
) -> None:
    """As on Ctrl-C in the middle of a step."""
    engine = NeverEnds()
    server = ServerThread()
    server.start(build_app(ChatEncoder(policy.tokenizer, policy.end_id), engine))
    async with httpx.AsyncClient(base_url=server.base_url, timeout=30) as client:
        body = {"messages": [{"role": "user", "content": "Hello"}], "max_tokens": 8}
        asked = asyncio.create_task(client.post("/chat/completions", json=body))
        await asyncio.to_thread(engine.samples.wait, 30)
        started = time.monotonic()
        await asyncio.to_thread(server.stop)
        assert time.monotonic() - started < 2.5
        (answer,) = await asyncio.gather(asked, return_exceptions=True)
    assert isinstance(answer, httpx.HTTPError) or (isinstance(answer, httpx.Response) and answer.status_code == 503)
    assert engine.was_cancelled.is_set()
    assert not capfd.readouterr().err
