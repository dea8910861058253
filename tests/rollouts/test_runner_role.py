"""A runner in a terminal of its own waits for its algorithm and says why, and leaves over what is wrong on its host."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import agentlightning as agl
import pytest

from sql_agent.config.settings import load_settings
from sql_agent.errors import TrainingError
from sql_agent.rollouts import processes, runner_role
from sql_agent.rollouts.lease import LEASE_ROW, Lease, LeaseHolder
from sql_agent.rollouts.run_role import StoreAddress
from sql_agent.rollouts.run_settings import route_resources, sent_settings
from sql_agent.rollouts.runner_role import RunnerRole
from sql_agent.tasks.task import load_task
from tests.support.small_database import make_database


class Store(agl.InMemoryLightningStore):  # type: ignore[misc]
    async def close(self) -> None:
        """As a client of a store has it."""


class Runner:
    """A runner of the store `store`, whose lines are in `said`."""

    def __init__(self, store: Store) -> None:
        self.said: list[str] = []
        processes: Any = SimpleNamespace(watch=lambda _: None, unwatch=lambda: None, start_runners=lambda _: None)
        self.role = RunnerRole(processes, load_settings(), StoreAddress("http://here"), self.said.append)
        self.role._store = store

    async def run_until(self, found: Callable[[list[str]], bool]) -> None:
        running = asyncio.create_task(self.role.run())
        async with asyncio.timeout(10):
            while not (found(self.said) or running.done()):  # noqa: ASYNC110  nothing tells
                await asyncio.sleep(0.01)
        if running.done():
            await running
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)


@pytest.fixture(autouse=True)
def _short(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(runner_role, "BEAT_S", 0.02)
    monkeypatch.setattr(runner_role, "_SILENT_S", 0.1)


async def test_a_runner_that_finds_the_entry_of_a_killed_algorithm_says_that_it_waits() -> None:
    store = Store()
    killed = Lease(session="1", run="night", resources_id="rs-1")
    await store.update_worker(LEASE_ROW, killed.model_dump())
    runner = Runner(store)
    await runner.run_until(bool)
    assert runner.said == ["No sign of the run night for 0 s; this runner waits"]


@pytest.mark.parametrize("error", [TrainingError("no room for the sample"), PermissionError(13, "denied", "var")])
async def test_what_is_wrong_on_the_runner_s_own_host_ends_it_and_is_not_taken_for_a_lost_store(
    error: Exception, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings = load_settings([f"database.path={make_database(tmp_path / 'medical.db')}"])
    store = Store()
    route = agl.ProxyLLM(endpoint="http://127.0.0.1:9", model="m")
    resources = await store.add_resources(route_resources(route, sent_settings(settings, "night")))

    def prepare(*_: object) -> None:
        raise error

    medical = load_task("medical")
    monkeypatch.setattr(
        runner_role, "load_task", lambda _: SimpleNamespace(open_database=medical.open_database, prepare=prepare)
    )
    monkeypatch.setattr("sql_agent.rollouts.lease.BEAT_S", 0.02)
    holder = LeaseHolder(store, "1", "night")
    assert await holder.acquire() is None
    await holder.publish(resources.resources_id)
    with pytest.raises(type(error), match=str(error.args[-1])):
        await Runner(store).run_until(lambda said: any("does not answer" in line for line in said))
    await holder.release("finished")


async def test_an_algorithm_without_a_runner_says_that_it_waits_for_one_and_when_one_is_there(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(processes, "BEAT_S", 0.02)
    store, said = Store(), list[str]()
    watching = asyncio.create_task(processes.Recovery(store, said.append, lambda _: None).watch_runners())

    async def until(line: str, *, beats: bool) -> None:
        async with asyncio.timeout(10):
            while not (said and said[-1] == line):
                if beats:
                    await store.update_worker("host-1")
                await asyncio.sleep(0.01)

    await until("No runner uses the store; the run waits.", beats=False)
    await until("A runner uses the store.", beats=True)
    await until("No runner uses the store; the run waits.", beats=False)
    watching.cancel()
    assert said == [
        "No runner uses the store; the run waits.",
        "A runner uses the store.",
        "Runner host-1 gave no sign of life; no rollout was lost.",
        "No runner uses the store; the run waits.",
    ]
