"""One algorithm uses a store at a time, and ends although the store does not answer any more."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable
from typing import Any
from uuid import uuid4

import agentlightning as agl
import pytest

from sql_agent.rollouts import presence


@pytest.fixture(autouse=True)
def _short(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(presence, "BEAT_S", 0.2)


async def test_a_store_whose_host_is_gone_does_not_keep_a_run_from_ending(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(presence, "_LAST_S", 0.05)
    store = agl.InMemoryLightningStore()
    announcer = presence.Announcer(store, presence.Announcement(session="s", run="r"))
    assert await announcer.claim() is None

    async def never(*_: object) -> None:
        await asyncio.Event().wait()

    monkeypatch.setattr(store, "update_worker", never)
    await asyncio.wait_for(announcer.close("failed"), timeout=10)


@pytest.mark.parametrize("pause_s", [0.0, 0.01, 0.1])
@pytest.mark.parametrize("slowness_s", [0.0, 0.1])
async def test_of_algorithms_that_begin_at_the_same_time_one_has_the_store(
    pause_s: float, slowness_s: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = agl.InMemoryLightningStore()
    for call in ("update_worker", "query_workers"):
        monkeypatch.setattr(store, call, slowed(getattr(store, call), slowness_s))
    announcers = [
        presence.Announcer(store, presence.Announcement(session=uuid4().hex, run=f"run-{number}"))
        for number in range(4)
    ]

    async def begin(number: int) -> str | None:
        await asyncio.sleep(number * pause_s)
        return await announcers[number].claim()

    others = await asyncio.gather(*map(begin, range(4)))
    assert others.count(None) == 1, others
    found = await presence.read_announcement(store)
    assert found is not None and found[0].run == f"run-{others.index(None)}"
    late = presence.Announcer(store, presence.Announcement(session="0", run="late"))
    assert await late.claim() == found[0].run, "one that has the store keeps it"
    await announcers[others.index(None)].close("finished")
    later = presence.Announcer(store, presence.Announcement(session="z", run="later"))
    assert await later.claim() is None, "an algorithm that has ended leaves the store to others"
    await later.close("finished")


async def test_an_algorithm_that_was_killed_leaves_the_store_to_the_next_one() -> None:
    store = agl.InMemoryLightningStore()
    killed = presence.Announcement(session="0", run="killed", holds=True, resources_id="rs-1")
    await store.update_worker("sql-agent-algorithm-0", killed.model_dump())
    resumed = presence.Announcer(store, presence.Announcement(session="1", run="resumed"))
    assert await resumed.claim() is None
    found = await presence.read_announcement(store)
    assert found is not None and found[0].run == "resumed", "a runner follows the newest"
    await resumed.close("finished")


def slowed(call: Callable[..., Awaitable[Any]], most_s: float) -> Callable[..., Awaitable[Any]]:
    """Return `call` with a pause of up to `most_s` seconds before it."""
    chance = random.Random(0)

    async def later(*args: object, **options: object) -> Any:
        await asyncio.sleep(chance.uniform(0, most_s))
        return await call(*args, **options)

    return later
