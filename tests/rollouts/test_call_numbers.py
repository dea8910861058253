"""A runner numbers the calls of each rollout, in which the algorithm looks for gaps."""

from __future__ import annotations

from sql_agent.agent.agent import shared_client
from sql_agent.rollouts.lit_agent import CallNumbers
from tests.support.judge_server import completion, serving


async def test_calls_are_numbered_by_rollout_and_forgotten_with_it() -> None:
    numbers = CallNumbers()
    with serving() as proxy:
        proxy.default = completion("hello")
        async with shared_client(direct=True, on_request=numbers) as client:
            sent = {
                rollout: [
                    (await client.post(f"{proxy.url}/rollout/{rollout}/attempt/a/v1/chat/completions", json={})).request
                    for _ in range(calls)
                ]
                for rollout, calls in {"one": 2, "other": 1}.items()
            }
            unnumbered = await client.post(f"{proxy.url}/v1/chat/completions", json={})
    assert [request.headers["x-sequence-id"] for request in sent["one"]] == ["1", "2"]
    assert [request.headers["x-sequence-id"] for request in sent["other"]] == ["1"]
    assert "x-sequence-id" not in unnumbered.request.headers
    assert [numbers.pop("one"), numbers.pop("one"), numbers.pop("other")] == [2, 0, 1]
