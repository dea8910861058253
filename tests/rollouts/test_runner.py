"""A runner takes rollouts, runs them at once, and reports their ends, whatever becomes of the store meanwhile."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager, suppress
from typing import Any
from unittest.mock import Mock

import agentlightning as agl
import aiohttp
import pytest
from opentelemetry.sdk.trace import ReadableSpan

from sql_agent.rollouts import runner as rollout_runner
from sql_agent.rollouts.run_role import StoreAddress
from sql_agent.rollouts.runner import ConcurrentRunner
from sql_agent.rollouts.spans import SpanOwner, make_span
from sql_agent.rollouts.store import RunStore, StoreClient, served_store


class Echo(agl.LitAgent[dict[str, Any]]):  # type: ignore[misc]
    """Ends each rollout with one span; one whose task is "fail" raises."""

    async def training_rollout_async(self, task: dict[str, Any], resources: Any, rollout: Any) -> list[ReadableSpan]:
        if task["question"] == "fail":
            raise ValueError("the agent failed")
        owner = SpanOwner(rollout.rollout_id, rollout.attempt.attempt_id, 1)
        return [make_span(task["question"], {}, owner, 1.0, 2.0)]


class Refusing(RunStore):
    """Cannot store the end of the rollout whose id is `refused`, nor any spans while `takes_spans` is false."""

    refused = ""
    takes_spans = True

    async def add_many_spans(self, spans: Sequence[agl.Span]) -> Sequence[agl.Span]:
        if not self.takes_spans:
            raise ValueError("spans of no rollout")
        return await super().add_many_spans(spans)

    async def update_attempt(self, rollout_id: str, *given: Any, **values: Any) -> agl.Attempt:
        if rollout_id == self.refused:
            raise ValueError("an end that cannot be stored")
        return await super().update_attempt(rollout_id, *given, **values)


class Unsteady(StoreClient):
    """Loses the connection whenever it is to report an end, so many times.

    Every second loss is what a gateway says before a store that is away.
    """

    losses = 2
    lost_answers = 0  # of requests for rollouts

    async def dequeue_many_rollouts(self, **values: Any) -> Sequence[agl.AttemptedRollout]:
        taken = await super().dequeue_many_rollouts(**values)
        if taken and self.lost_answers:
            self.lost_answers -= 1
            raise aiohttp.ServerDisconnectedError
        return taken

    async def update_attempt(self, *given: Any, **values: Any) -> agl.Attempt:
        if self.losses:
            self.losses -= 1
            if self.losses % 2:
                raise aiohttp.ClientResponseError(Mock(), (), status=503)
            raise aiohttp.ServerDisconnectedError
        return await super().update_attempt(*given, **values)


@asynccontextmanager
async def running(store: RunStore, *, concurrency: int = 8) -> AsyncIterator[Unsteady]:
    """Run rollouts of `store` in a runner of this process; yields the runner's client."""
    async with served_store(store) as url:
        client = Unsteady(StoreAddress(url), retry_delays=())
        runner = ConcurrentRunner(Echo(), client, concurrency=concurrency)
        task = asyncio.create_task(runner.run())
        try:
            yield client
        finally:
            task.cancel()
            with suppress(asyncio.CancelledError):
                await task
            await client.close()


async def ended(store: RunStore, count: int) -> dict[str, str]:
    """Wait until `count` rollouts have ended, and return their status by question."""
    async with asyncio.timeout(20):
        while len(rollouts := await store.query_rollouts(status_in=["succeeded", "failed"])) < count:  # noqa: ASYNC110
            await asyncio.sleep(0.01)
    return {rollout.input["question"]: rollout.status for rollout in rollouts}


async def test_ends_that_the_store_did_not_take_are_reported_again_with_their_spans(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(rollout_runner, "_REPEAT_S", 0.05)
    store = RunStore()
    resources = await store.add_resources({})
    async with running(store) as client:
        for question in ("one", "fail", "two"):
            await store.enqueue_rollout({"question": question}, "train", resources.resources_id)
        assert await ended(store, 3) == {"one": "succeeded", "fail": "failed", "two": "succeeded"}
        assert client.losses == 0
    spans = [await store.query_spans(rollout.rollout_id) for rollout in await store.query_rollouts()]
    assert [[span.name for span in of_rollout] for of_rollout in spans] == [["one"], [], ["two"]]


async def test_a_runner_fills_up_at_once_and_asks_again_when_rollouts_end() -> None:
    store = RunStore()
    resources = await store.add_resources({})
    async with running(store) as client:
        client.losses = 0
        await asyncio.sleep(0.2)
        for number in range(20):
            await store.enqueue_rollout({"question": str(number)}, "train", resources.resources_id)
        assert set((await ended(store, 20)).values()) == {"succeeded"}


async def test_an_end_that_the_store_refuses_is_given_up_and_frees_its_place() -> None:
    store = Refusing()
    resources = await store.add_resources({})
    async with running(store, concurrency=1) as client:
        client.losses = 0
        for question in ("refused", "two"):
            rollout = await store.enqueue_rollout({"question": question}, "train", resources.resources_id)
            store.refused = store.refused or rollout.rollout_id
        assert await ended(store, 1) == {"two": "succeeded"}


async def test_a_rollout_whose_spans_the_store_does_not_take_fails_and_frees_its_place() -> None:
    store = Refusing()
    store.takes_spans = False
    resources = await store.add_resources({})
    async with running(store, concurrency=1) as client:
        client.losses = 0
        await store.enqueue_rollout({"question": "one"}, "train", resources.resources_id)
        assert await ended(store, 1) == {"one": "failed"}
        store.takes_spans = True
        await store.enqueue_rollout({"question": "two"}, "train", resources.resources_id)
        assert await ended(store, 2) == {"one": "failed", "two": "succeeded"}


async def test_rollouts_in_an_answer_that_was_lost_fail_at_once_and_with_the_reason() -> None:
    store = RunStore()
    resources = await store.add_resources({})
    async with running(store) as client:
        client.losses, client.lost_answers = 0, 1
        await store.enqueue_rollout({"question": "one"}, "train", resources.resources_id)
        assert await ended(store, 1) == {"one": "failed"}
        await store.enqueue_rollout({"question": "two"}, "train", resources.resources_id)
        assert await ended(store, 2) == {"one": "failed", "two": "succeeded"}
    (lost,) = await store.query_rollouts(status_in=["failed"])
    assert "was lost" in lost.metadata["lost"]
