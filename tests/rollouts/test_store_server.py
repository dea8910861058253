"""A store that is served takes spans and hands out rollouts, as agent-lightning's own server does."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from unittest.mock import Mock

import agentlightning as agl
import aiohttp
import pytest

from sql_agent.errors import TrainingError
from sql_agent.rollouts import runner, spans
from sql_agent.rollouts.run_role import StoreAddress, check_store
from sql_agent.rollouts.spans import SpanExporter, SpanOwner, make_span
from sql_agent.rollouts.store import RunStore, StoreClient, served_store
from tests.support.processes import free_port


@pytest.fixture(params=["ours", "agent-lightning's"])
async def client(request: pytest.FixtureRequest) -> AsyncIterator[StoreClient]:
    """A client of a RunStore that is served by one of the two servers."""
    if request.param == "ours":
        async with served_store(RunStore(), token="t") as url:
            client = StoreClient(StoreAddress(url, "t"), retry_delays=())
            yield client
            await client.close()
        return
    server = agl.LightningStoreServer(RunStore(), "127.0.0.1", free_port())
    await server.start()
    client = StoreClient(StoreAddress(server.endpoint), retry_delays=())
    yield client
    await client.close()
    await server.stop()


async def test_both_servers_give_the_same_answers(client: StoreClient) -> None:
    assert await client.dequeue_many_rollouts(limit=4, worker_id="w") == []
    await client.enqueue_rollout(input={"question": 7}, metadata={"group": "g"}, resources_id="r")
    (taken,) = await client.dequeue_many_rollouts(limit=4, worker_id="w")
    assert (taken.status, taken.input, taken.metadata, taken.resources_id) == (
        "preparing", {"question": 7}, {"group": "g"}, "r",
    )  # fmt: skip
    ids = {"rollout_id": taken.rollout_id, "attempt_id": taken.attempt.attempt_id}
    issued = await client.get_next_span_sequence_id(**ids)
    exporter = SpanExporter()
    call = make_span("call", {"ids": "[1, 2]"}, SpanOwner(**ids, sequence_id=issued), 1.0, 2.0)
    for _ in range(2):  # sent twice, because an answer was lost
        await exporter.send(client.otlp_traces_endpoint(), [call], token=client.token)
    await exporter.close()
    (running,) = await client.query_rollouts(rollout_id_in=[taken.rollout_id])
    await client.update_attempt(**ids, status="succeeded")
    (rollout,) = await client.wait_for_rollouts(rollout_ids=[taken.rollout_id], timeout=0.0)
    assert (running.status, rollout.status) == ("running", "succeeded")
    found = await client.query_spans(taken.rollout_id, "latest")
    assert [(span.name, span.sequence_id, span.attributes) for span in found] == [("call", 1, {"ids": "[1, 2]"})]


async def test_a_store_is_asked_directly_whatever_proxy_the_environment_names(
    client: StoreClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("http_proxy", f"http://127.0.0.1:{free_port()}")
    monkeypatch.setattr(runner, "BEAT_S", 0.01)
    address = StoreAddress(client.server_address_root, client.token)
    await asyncio.to_thread(check_store, address)
    heartbeat = runner.Heartbeat(address, "w")
    try:
        async with asyncio.timeout(10):
            while not await client.query_workers():  # noqa: ASYNC110  it is in another thread
                await asyncio.sleep(0.01)
    finally:
        heartbeat.stop()


async def test_whoever_sends_spans_gets_whatever_error_keeps_them_from_the_store(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(spans, "_RETRIES", 1)
    monkeypatch.setattr(aiohttp.ClientSession, "post", Mock(side_effect=RuntimeError("the handler is closed")))
    exporter = SpanExporter()
    span = make_span("call", {}, SpanOwner("r", "a", 1), 1.0, 2.0)
    with pytest.raises(TrainingError, match="did not accept 1 spans: RuntimeError: the handler is closed"):
        await asyncio.wait_for(exporter.send("http://127.0.0.1:1", [span]), timeout=10)
    await exporter.close()
