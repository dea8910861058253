"""Clients of the policy endpoint do not disturb each other."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from typing import Any

import httpx
import pytest

from sql_agent.config.settings import load_settings
from sql_agent.system.servers import bearer
from sql_agent.training.local.policy_service import PolicyService
from sql_agent.training.local.sampler import Sampler
from sql_agent.training.policy.model import Policy
from sql_agent.training.serving.server import ServerThread


@pytest.fixture(scope="module")
def service(policy: Policy) -> Iterator[PolicyService]:
    service = PolicyService(policy, load_settings(["local.max_context=4096"]), ServerThread.with_key(), bf16=False)
    yield service
    service.close()


async def ask(service: PolicyService, *, patience_s: float = 30.0, **body: Any) -> httpx.Response:
    request = {"messages": [{"role": "user", "content": "Hello"}], "max_tokens": 4} | body
    async with httpx.AsyncClient(timeout=patience_s, headers=bearer(service.api_key)) as client:
        return await client.post(f"{service.base_url}/chat/completions", json=request)


async def test_clients_that_go_away_fail_neither_their_neighbours_nor_those_who_come_later(
    service: PolicyService,
) -> None:
    lost = 0
    for patience_s in (0.02, 0.1, 0.3):  # before the batch starts, while it starts, while it is sampled
        leaving = [ask(service, patience_s=patience_s, max_tokens=3000) for _ in range(3)]
        staying = [ask(service, max_tokens=64) for _ in range(2)]
        *left, first, second = await asyncio.gather(*leaving, *staying, return_exceptions=True)
        lost += sum(isinstance(reply, httpx.TimeoutException) for reply in left)
        for reply in (first, second):
            assert isinstance(reply, httpx.Response) and reply.status_code == 200
    assert lost >= 3
    assert (await ask(service)).status_code == 200


async def test_a_request_for_which_there_is_no_memory_is_told_so_and_the_next_one_is_answered(
    service: PolicyService, monkeypatch: pytest.MonkeyPatch
) -> None:
    def admit(*_: object) -> None:
        raise RuntimeError("DefaultCPUAllocator: can't allocate memory: you tried to allocate 20 bytes.")

    with monkeypatch.context() as starved:
        starved.setattr(Sampler, "admit", admit)
        refused = await ask(service)
    assert refused.status_code == 503 and "the policy server ran out of memory" in refused.text
    assert (await ask(service)).status_code == 200


@pytest.mark.parametrize("wrong", [{"max_tokens": -1}, {"temperature": "hot"}, {"top_p": 0.9}, {"messages": None}])
async def test_a_request_that_cannot_be_sampled_is_refused_before_it_reaches_a_batch(
    service: PolicyService, wrong: dict[str, Any]
) -> None:
    refused, answered = await asyncio.gather(ask(service, **wrong), ask(service))
    assert refused.status_code == 400
    assert answered.status_code == 200
