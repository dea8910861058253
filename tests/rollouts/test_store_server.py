"""A run's store answers frequent requests by a shorter way, and as agent-lightning's own server does."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from typing import Any
from unittest.mock import Mock

import agentlightning as agl
import aiohttp
import pytest

from sql_agent.errors import TrainingError
from sql_agent.rollouts import runner, spans, store_client
from sql_agent.rollouts import store as run_store
from sql_agent.rollouts.run_role import StoreAddress, check_store
from sql_agent.rollouts.spans import SpanExporter, make_span
from sql_agent.rollouts.store import RunStore
from sql_agent.rollouts.store_client import AglStoreClient, StoreClient, open_store
from sql_agent.rollouts.store_protocol import EndedAttempt
from sql_agent.rollouts.store_server import served_store
from sql_agent.system.servers import free_port

RETRY_DELAYS = (0.1, 0.2)  # agent-lightning's own make eight seconds


@pytest.fixture(params=["short", "agent-lightning's"])
async def client(request: pytest.FixtureRequest) -> AsyncIterator[AglStoreClient]:
    """A client of a RunStore that is served by one of the two ways."""
    if request.param == "short":
        async with served_store(RunStore()) as url:
            client: AglStoreClient = StoreClient(url, retry_delays=RETRY_DELAYS)
            yield client
            await client.close()
        return
    server = agl.LightningStoreServer(RunStore(), "127.0.0.1", free_port())
    await server.start()
    client = AglStoreClient(server.endpoint, retry_delays=RETRY_DELAYS)
    yield client
    await client.close()
    await server.stop()


def span_of(taken: agl.AttemptedRollout, name: str, number: int) -> agl.Span:
    return agl.Span.from_attributes(
        name=name,
        attributes={"a": 1},
        rollout_id=taken.rollout_id,
        attempt_id=taken.attempt.attempt_id,
        sequence_id=number,
    )


def end_of(taken: agl.AttemptedRollout, number: int) -> EndedAttempt:
    """The end of an attempt whose runner sends one span, with this number."""
    attempt = taken.attempt.attempt_id
    spans = [span_of(taken, "end", number)]
    return EndedAttempt(rollout_id=taken.rollout_id, attempt_id=attempt, status="succeeded", spans=spans)


async def run_one(client: AglStoreClient, number: int) -> dict[str, Any]:
    """Send one rollout on its way and return what was heard of it, without ids and times."""
    await client.enqueue_rollout(input={"question": number}, metadata={"group": "g"}, resources_id="r")
    (taken,) = await client.report_and_take([], worker_id="w", limit=4)
    rollout_id, attempt_id = taken.rollout_id, taken.attempt.attempt_id
    issued = await client.get_next_span_sequence_id(rollout_id, attempt_id)
    exporter = SpanExporter()
    owner = {"rollout_id": rollout_id, "attempt_id": attempt_id, "seconds": (1.0, 2.0)}
    await exporter.send(
        client.otlp_traces_endpoint(), [make_span("call", {"ids": "[1, 2]"}, sequence_id=issued, **owner)]
    )
    await exporter.close()
    (running,) = await client.query_rollouts(rollout_id_in=[rollout_id])
    assert await client.report_and_take([end_of(taken, 2)], worker_id="w", limit=0) == []
    (rollout,) = await client.wait_for_rollouts(rollout_ids=[rollout_id], timeout=0.0)
    found = await client.query_spans(rollout_id, "latest")
    return {
        "taken": (taken.status, taken.input, taken.metadata, taken.resources_id, taken.attempt.worker_id),
        "statuses": (running.status, rollout.status),
        "spans": [(span.name, span.sequence_id, span.attributes) for span in found],
    }


async def test_both_ways_give_the_same_answers(client: AglStoreClient) -> None:
    assert await client.report_and_take([], worker_id="w", limit=4) == []
    assert await run_one(client, 7) == {
        "taken": ("preparing", {"question": 7}, {"group": "g"}, "r", "w"),
        "statuses": ("running", "succeeded"),
        "spans": [("call", 1, {"ids": "[1, 2]"}), ("end", 2, {"a": 1})],
    }


async def test_the_end_of_a_rollout_that_the_store_does_not_have_loses_no_other(client: AglStoreClient) -> None:
    for _ in range(2):
        await client.enqueue_rollout(input={})
    kept, gone = await client.report_and_take([], worker_id="w", limit=2)
    gone = gone.model_copy(
        update={"rollout_id": "gone", "attempt": gone.attempt.model_copy(update={"rollout_id": "gone"})}
    )
    await client.report_and_take([end_of(gone, 1), end_of(kept, 1)], worker_id="w", limit=0)
    (ended,) = await client.wait_for_rollouts(rollout_ids=[kept.rollout_id], timeout=0.0)
    assert ended.status == "succeeded"
    assert [span.name for span in await client.query_spans(kept.rollout_id)] == ["end"]


async def test_an_end_that_is_reported_twice_because_the_answer_was_lost_counts_once(client: AglStoreClient) -> None:
    await client.enqueue_rollout(input={})
    (taken,) = await client.report_and_take([], worker_id="w", limit=1)
    end = end_of(taken, 1)
    for _ in range(2):
        await client.report_and_take([end], worker_id="w", limit=0)
    assert [span.name for span in await client.query_spans(taken.rollout_id)] == ["end"]


async def test_an_algorithm_elsewhere_gets_ended_rollouts_with_their_spans_or_has_to_poll(
    client: AglStoreClient, request: pytest.FixtureRequest
) -> None:
    ended: list[agl.Rollout] = []

    def end(rollout: agl.Rollout) -> bool:
        ended.append(rollout)
        return True

    watch = asyncio.create_task(client.watch_ended(end))
    if "short" not in request.node.name:
        await asyncio.wait_for(watch, timeout=10)
        return
    await asyncio.sleep(0.2)  # until it has asked
    await run_one(client, 1)
    async with asyncio.timeout(10):
        while not ended:  # noqa: ASYNC110
            await asyncio.sleep(0.01)
    assert not watch.done()
    watch.cancel()
    (rollout,) = ended
    asked = Mock(wraps=client.query_spans)
    client.query_spans = asked
    assert {span.name for span in await client.spans_of(rollout.rollout_id)} == {"call", "end"}
    asked.assert_not_called()
    await client.add_span(span_of(await attempted(client, rollout), "late", 3))
    assert {span.name for span in await client.spans_of(rollout.rollout_id)} == {"call", "end", "late"}


async def attempted(client: AglStoreClient, rollout: agl.Rollout) -> agl.AttemptedRollout:
    found = await client.get_rollout_by_id(rollout.rollout_id)
    assert isinstance(found, agl.AttemptedRollout)
    return found


async def test_a_store_is_asked_directly_whatever_proxy_the_environment_names(
    client: AglStoreClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("http_proxy", f"http://127.0.0.1:{free_port()}")
    monkeypatch.setattr(runner, "BEAT_S", 0.01)
    address = StoreAddress(client.server_address_root)
    checked = await asyncio.to_thread(check_store, address)
    assert checked.is_agl_store is not isinstance(client, StoreClient)
    assert type(open_store(checked)) is type(client)
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
    span = make_span("call", {}, rollout_id="r", attempt_id="a", seconds=(1.0, 2.0))
    with pytest.raises(TrainingError, match="did not accept 1 spans: RuntimeError: the handler is closed"):
        await asyncio.wait_for(exporter.send("http://127.0.0.1:1", [span]), timeout=10)
    await exporter.close()


async def test_a_store_in_another_process_forgets_what_was_consumed_even_if_it_did_not_always_answer(
    client: AglStoreClient, request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(run_store, "_KEPT", 3)
    monkeypatch.setattr(store_client, "_CONSUMED_AT_ONCE", 2)
    answers, asked = client._request_json, 0
    trouble = [aiohttp.ServerDisconnectedError(), aiohttp.ClientResponseError(Mock(), (), status=503)]

    async def answers_later(method: Any, path: str, **options: Any) -> Any:
        nonlocal asked
        if path == "/consumed":
            asked += 1
            if trouble:
                raise trouble.pop()
        return await answers(method, path, **options)

    monkeypatch.setattr(client, "_request_json", answers_later)
    for number in range(10):
        await run_one(client, number)
        (newest,) = [
            r for r in await client.query_rollouts() if json.loads(json.dumps(r.input)) == {"question": number}
        ]
        await client.mark_consumed(newest.rollout_id)
    left = len(await client.query_rollouts())
    assert (left, asked) == ((3, 5) if "short" in request.node.name else (10, 0)), "agl store keeps all"
