"""A run that waits says what for."""

from __future__ import annotations

import asyncio

import agentlightning as agl

from sql_agent.rollouts.scheduler import describe_stall


async def test_a_stall_is_explained_by_naming_queue_worker_and_rollout() -> None:
    store = agl.InMemoryLightningStore()
    queued = await store.enqueue_rollout(input={"q": 1})
    await store.enqueue_rollout(input={"q": 2})
    taken = await store.dequeue_rollout(worker_id="Worker-7")
    assert taken is not None
    await asyncio.sleep(0)
    ids = [r.rollout_id for r in await store.query_rollouts()]
    text = await describe_stall(store, dict.fromkeys(ids, 0.0) | {taken.rollout_id: 61.0})
    assert "waiting for 2 rollouts" in text and "1 queuing" in text
    assert f"{taken.rollout_id} on Worker-7 for 61 s" in text
    assert queued.rollout_id in ids
