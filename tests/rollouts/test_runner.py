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

from sql_agent.rollouts.runner import ConcurrentRunner
from sql_agent.rollouts.store import RunStore
from sql_agent.rollouts.store_client import StoreClient
from sql_agent.rollouts.store_protocol import LOST, REFUSED, EndedAttempt
from sql_agent.rollouts.store_server import served_store


class Echo(agl.LitAgent[dict[str, Any]]):  # type: ignore[misc]
    """Ends each rollout with one span; one whose task is "fail" raises."""

    async def training_rollout_async(self, task: dict[str, Any], resources: Any, rollout: Any) -> list[agl.Span]:
        if task["question"] == "fail":
            raise ValueError("the agent failed")
        owner = {"rollout_id": rollout.rollout_id, "attempt_id": rollout.attempt.attempt_id}
        return [agl.Span.from_attributes(name=task["question"], attributes={}, sequence_id=1, **owner)]


class Refusing(RunStore):
    """Cannot store a span of the name "refused"."""

    async def add_many_spans(self, spans: Sequence[agl.Span]) -> Sequence[agl.Span]:
        if any(span.name == "refused" for span in spans):
            raise TypeError("a span that cannot be stored")
        stored: Sequence[agl.Span] = await super().add_many_spans(spans)
        return stored


class Unsteady(StoreClient):
    """Loses the connection whenever it is to report an end, and then the answers that bring rollouts, so many times.

    Every second loss is what a gateway says before a store that is away. So many times it refuses at first to do
    anything.
    """

    losses = 2
    lost_answers = 0
    refusals = 0

    async def report_and_take(self, ended: Sequence[EndedAttempt], **options: Any) -> Sequence[agl.AttemptedRollout]:
        if self.refusals:
            self.refusals -= 1
            raise aiohttp.ClientResponseError(Mock(), (), status=500, message="a defect")
        if ended and self.losses:
            self.losses -= 1
            if self.losses % 2:
                raise aiohttp.ClientResponseError(Mock(), (), status=503)
            raise aiohttp.ServerDisconnectedError
        return await super().report_and_take(ended, **options)

    async def _post(self, path: str, body: Any) -> Any:
        answer = await super()._post(path, body)
        if answer and self.lost_answers:
            self.lost_answers -= 1
            raise aiohttp.ServerDisconnectedError
        return answer


@asynccontextmanager
async def running(store: RunStore) -> AsyncIterator[Unsteady]:
    """Run rollouts of `store` in a runner of this process; yields the runner's client."""
    async with served_store(store) as url:
        client = Unsteady(url, retry_delays=())
        runner = ConcurrentRunner(Echo(), client, concurrency=8)
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


async def test_ends_that_the_store_did_not_take_are_reported_again_with_their_spans() -> None:
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


async def test_rollouts_whose_answer_was_lost_end_as_failed_at_once_with_the_reason_and_no_other_does() -> None:
    store = RunStore()
    resources = await store.add_resources({})
    async with running(store) as client:
        client.losses, client.lost_answers = 1, 2
        for number in range(20):
            await store.enqueue_rollout({"question": str(number)}, "train", resources.resources_id)
        statuses = await ended(store, 20)
        assert client.lost_answers == 0
    failed = await store.query_rollouts(status_in=["failed"])
    assert {rollout.metadata[LOST] for rollout in failed} == {"the answer that gave it to a runner was lost"}
    assert 2 <= len(failed) <= 8, "four rollouts in an answer"
    assert sorted(statuses.values()) == ["failed"] * len(failed) + ["succeeded"] * (20 - len(failed))


async def test_an_end_that_the_store_refuses_is_given_up_with_the_reason_and_loses_no_other() -> None:
    store = Refusing()
    resources = await store.add_resources({})
    async with running(store) as client:
        client.losses = 0
        for question in ("one", "refused", "two"):
            await store.enqueue_rollout({"question": question}, "train", resources.resources_id)
        assert await ended(store, 3) == {"one": "succeeded", "refused": "failed", "two": "succeeded"}
    (failed,) = await store.query_rollouts(status_in=["failed"])
    assert "TypeError: a span that cannot be stored" in failed.metadata[REFUSED]


async def test_a_store_that_refuses_to_hand_out_rollouts_is_reported_once_with_the_cause(
    capsys: pytest.CaptureFixture[str],
) -> None:
    store = RunStore()
    resources = await store.add_resources({})
    async with running(store) as client:
        client.losses, client.refusals = 0, 3
        await store.enqueue_rollout({"question": "one"}, "train", resources.resources_id)
        await ended(store, 1)
    refused, again = capsys.readouterr().out.splitlines()
    assert "gives a runner no rollouts: ClientResponseError: 500, message='a defect'" in refused
    assert again == f"The store at {client.server_address_root} answers again."
