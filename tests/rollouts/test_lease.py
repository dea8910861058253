"""One algorithm uses a store at a time, and ends although the store does not answer any more."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable
from typing import Any
from uuid import uuid4

import agentlightning as agl
import pytest

from sql_agent.rollouts import lease


@pytest.fixture(autouse=True)
def _short(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lease, "BEAT_S", 0.2)


async def test_a_store_whose_host_is_gone_does_not_keep_a_run_from_ending(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lease, "_RELEASE_S", 0.05)
    store = agl.InMemoryLightningStore()
    holder = lease.LeaseHolder(store, "s", "r")
    assert await holder.acquire() is None

    async def never(*_: object) -> None:
        await asyncio.Event().wait()

    monkeypatch.setattr(store, "update_worker", never)
    await asyncio.wait_for(holder.release("failed"), timeout=10)


@pytest.mark.parametrize("pause_s", [0.0, 0.01, 0.1])
@pytest.mark.parametrize("slowness_s", [0.0, 0.1])
async def test_of_algorithms_that_begin_at_the_same_time_one_has_the_store(
    pause_s: float, slowness_s: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = agl.InMemoryLightningStore()
    for call in ("update_worker", "query_workers"):
        monkeypatch.setattr(store, call, slowed(getattr(store, call), slowness_s))
    holders = [lease.LeaseHolder(store, uuid4().hex, f"run-{number}") for number in range(4)]

    async def begin(number: int) -> str | None:
        await asyncio.sleep(number * pause_s)
        return await holders[number].acquire()

    others = await asyncio.gather(*map(begin, range(4)))
    assert others.count(None) == 1, others
    found = await lease.read_lease(store)
    assert found is not None and found[0].run == f"run-{others.index(None)}"
    late = lease.LeaseHolder(store, "0", "late")
    assert await late.acquire() == found[0].run, "one that has the store keeps it"
    await holders[others.index(None)].release("finished")
    later = lease.LeaseHolder(store, "z", "later")
    assert await later.acquire() is None, "an algorithm that has ended leaves the store to others"
    await later.release("finished")


async def test_an_algorithm_that_ends_while_the_next_one_waits_leaves_the_store_to_it() -> None:
    store = agl.InMemoryLightningStore()
    ending = lease.LeaseHolder(store, "0", "ending")
    assert await ending.acquire() is None
    following = lease.LeaseHolder(store, "1", "following")
    acquired = asyncio.create_task(following.acquire())
    await asyncio.sleep(0.05)
    await ending.release("finished")
    assert await acquired is None
    await following.release("finished")


async def test_an_algorithm_that_was_killed_leaves_the_store_to_the_next_one() -> None:
    store = agl.InMemoryLightningStore()
    killed = lease.Lease(session="0", run="killed", resources_id="rs-1")
    await store.update_worker(lease.LEASE_ROW, killed.model_dump())
    resumed = lease.LeaseHolder(store, "1", "resumed")
    assert await resumed.acquire() is None
    found = await lease.read_lease(store)
    assert found is not None and found[0].run == "resumed", "a runner follows the newest"
    await resumed.release("finished")


def slowed(call: Callable[..., Awaitable[Any]], most_s: float) -> Callable[..., Awaitable[Any]]:
    """Return `call` with a pause of up to `most_s` seconds before it."""
    chance = random.Random(0)

    async def later(*args: object, **options: object) -> Any:
        await asyncio.sleep(chance.uniform(0, most_s))
        return await call(*args, **options)

    return later


async def test_an_algorithm_that_was_suspended_while_another_took_the_store_is_told_and_leaves_it() -> None:
    store, lost = agl.InMemoryLightningStore(), list[str]()
    suspended = lease.LeaseHolder(store, "0", "suspended", lost.append)
    assert await suspended.acquire() is None
    taken = lease.Lease(session="1", run="other")
    await store.update_worker(lease.LEASE_ROW, taken.model_dump())
    async with asyncio.timeout(10):
        while not lost:  # noqa: ASYNC110
            await asyncio.sleep(0.01)
    assert lost == ["other"]
    await suspended.release("failed")
    found = await lease.read_lease(store)
    assert found is not None and found[0] == taken
