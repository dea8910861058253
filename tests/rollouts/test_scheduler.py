"""A rollout that the store or the runners lose is counted, with its reason."""

from __future__ import annotations

import asyncio
import contextlib
import json
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import agentlightning as agl
import aiohttp
import pytest
from multidict import CIMultiDict, CIMultiDictProxy
from yarl import URL

from sql_agent.config.settings import load_settings
from sql_agent.rollouts import scheduler as rollout_scheduler
from sql_agent.rollouts.scheduler import RetryingScheduler, RolloutLostError, RolloutRequest, RolloutScheduler
from sql_agent.rollouts.store import RunStore, StoreLostError, named_store_errors
from sql_agent.rollouts.trajectory import FinishedRollout
from sql_agent.schemas import Drop, DropCause, Question

QUESTION = Question(id="q", question="?", answer="!")
STORE = URL("http://127.0.0.1:9/v1/agl/rollouts")
REQUEST = aiohttp.RequestInfo(STORE, "GET", CIMultiDictProxy(CIMultiDict()), STORE)


class UnreadableStore(RunStore):
    async def query_spans(self, *_: object, **__: object) -> Any:
        raise ConnectionResetError("the store hung up")


class Counts:
    def __init__(self) -> None:
        self.enqueued_requests: list[RolloutRequest] = []
        self.drops: list[Drop | None] = []

    def enqueued(self, request: RolloutRequest) -> None:
        self.enqueued_requests.append(request)

    def finished(self, request: RolloutRequest, rollout: FinishedRollout) -> None:
        self.drops.append(rollout.dropped)


async def end_whatever_is_queued(store: agl.LightningStore) -> None:
    while True:
        taken = await store.dequeue_rollout(worker_id="w")
        if taken is not None:
            await store.update_attempt(taken.rollout_id, taken.attempt.attempt_id, status="succeeded")
        await asyncio.sleep(0.01)


async def test_a_store_that_cannot_be_read_loses_the_rollout_with_its_reason_and_every_try_counts() -> None:
    store, counts = UnreadableStore(), Counts()
    scheduler = RolloutScheduler(store, None, ["r"], load_settings(["runner.rollout_timeout_s=10"]))
    retrying = RetryingScheduler(scheduler, counts, 2)
    helpers = [asyncio.create_task(end_whatever_is_queued(store)), asyncio.create_task(scheduler.watch())]
    try:
        with pytest.raises(RolloutLostError, match="the store hung up"):
            await retrying.run(RolloutRequest(QUESTION, "train", 1, "g"))
    finally:
        for helper in helpers:
            helper.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await helper
    assert len(counts.enqueued_requests) == 3
    assert [drop and drop.cause for drop in counts.drops] == [DropCause.STORE] * 3


async def test_a_group_keeps_its_route_while_steps_overlap_and_groups_share_the_routes() -> None:
    store = RunStore()
    scheduler = RolloutScheduler(store, None, ["r", "s"], load_settings(["runner.rollout_timeout_s=10"]))
    steps_and_groups = [(1, "a"), (2, "b"), (1, "a"), (3, "c"), (2, "b"), (1, "a"), (4, "d")]
    runs = [asyncio.create_task(scheduler.run(RolloutRequest(QUESTION, "train", *each))) for each in steps_and_groups]
    rollouts: list[Any] = []
    for _ in range(1000):
        rollouts = list(await store.query_rollouts())
        if len(rollouts) == len(runs):
            break
        await asyncio.sleep(0.01)
    for run in runs:
        run.cancel()
    await asyncio.gather(*runs, return_exceptions=True)
    routes = [((rollout.metadata or {})["group"], rollout.resources_id) for rollout in rollouts]
    assert sorted(set(routes)) == [("a", "r"), ("b", "s"), ("c", "r"), ("d", "s")]


@asynccontextmanager
async def rollout_in_hand(
    timeout_s: float,
) -> AsyncIterator[tuple[agl.LightningStore, asyncio.Task[FinishedRollout]]]:
    """Yield a store of which a runner has taken the only rollout, and the task that waits for its end."""
    store = RunStore()
    scheduler = RolloutScheduler(store, None, ["r"], load_settings([f"runner.rollout_timeout_s={timeout_s}"]))
    run = asyncio.create_task(scheduler.run(RolloutRequest(QUESTION, "train", 1, "g")))
    watch = asyncio.create_task(scheduler.watch())
    taken = None
    while taken is None:
        await asyncio.sleep(0.01)
        taken = await store.dequeue_rollout(worker_id="w")
    try:
        yield store, run
    finally:
        for task in (run, watch):
            task.cancel()
        await asyncio.gather(run, watch, return_exceptions=True)


@pytest.mark.parametrize("jump_s", [3600.0, -3600.0])
async def test_a_rollout_in_hand_outlives_a_clock_that_is_set_an_hour_on_or_back(
    jump_s: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(rollout_scheduler, "_LOOK_S", 0.0)
    monkeypatch.setattr(rollout_scheduler, "_NOTIFIED_POLL_S", 0.02)
    async with rollout_in_hand(timeout_s=10.0) as (store, run):
        before = time.time
        monkeypatch.setattr(time, "time", lambda: before() + jump_s)
        await asyncio.sleep(0.2)
        (rollout,) = await store.query_rollouts()
        assert rollout.status == "preparing" and not run.done()


async def test_a_rollout_that_runs_for_too_long_is_lost_with_that_reason(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rollout_scheduler, "_LOOK_S", 0.0)
    monkeypatch.setattr(rollout_scheduler, "_NOTIFIED_POLL_S", 0.02)
    async with rollout_in_hand(timeout_s=0.2) as (store, run):
        finished = await asyncio.wait_for(run, 10)
        assert finished.dropped == Drop(cause=DropCause.ATTEMPT, detail="it ran for more than 0.2 s")
        (rollout,) = await store.query_rollouts()
        assert rollout.status == "cancelled"


async def test_a_store_that_is_stopped_keeps_no_rollout_from_being_cancelled(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rollout_scheduler, "_CANCEL_S", 0.05)
    store = RunStore()
    scheduler = RolloutScheduler(store, None, ["r"], load_settings(["runner.rollout_timeout_s=10"]))
    running = asyncio.create_task(scheduler.run(RolloutRequest(QUESTION, "train", 1, "g")))
    while not scheduler.waiting:  # noqa: ASYNC110  nothing tells
        await asyncio.sleep(0.01)

    async def silent(*_: object, **__: object) -> None:
        await asyncio.Event().wait()

    monkeypatch.setattr(store, "update_rollout", silent)
    running.cancel()
    async with asyncio.timeout(5):
        await asyncio.wait([running])
    assert running.cancelled()


@pytest.mark.parametrize(
    ("error", "said"),
    [
        (aiohttp.ClientConnectionError("no"), "the store does not answer any more: ClientConnectionError: no"),
        (aiohttp.ClientResponseError(REQUEST, (), status=503, message="away"), "the store does not answer any more: "),
        (
            aiohttp.ClientResponseError(REQUEST, (), status=500, message="a defect"),
            "the store answers /v1/agl/rollouts with status 500: a defect",
        ),
        (json.JSONDecodeError("no value", "", 0), "the store sent an unreadable answer: JSONDecodeError: no value"),
    ],
)
def test_a_store_that_answers_what_does_not_help_is_not_said_to_be_silent(error: Exception, said: str) -> None:
    with pytest.raises(StoreLostError, match=said), named_store_errors():
        raise error


async def test_a_stall_is_explained_by_naming_queue_worker_and_rollout() -> None:
    store = RunStore()
    queued = await store.enqueue_rollout(input={"q": 1})
    await store.enqueue_rollout(input={"q": 2})
    taken = await store.dequeue_rollout(worker_id="Worker-7")
    assert taken is not None
    await asyncio.sleep(0)
    ids = [r.rollout_id for r in await store.query_rollouts()]
    text = await rollout_scheduler.describe_stall(store, dict.fromkeys(ids, 0.0) | {taken.rollout_id: 61.0})
    assert "waiting for 2 rollouts" in text and "1 queuing" in text
    assert f"{taken.rollout_id} on Worker-7 for 61 s" in text
    assert queued.rollout_id in ids
