"""However a run ends, its user is told why, and its runners in other terminals are told how."""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import agentlightning as agl
import aiohttp
import pytest

from sql_agent.config.settings import load_settings
from sql_agent.errors import SqlAgentError, TrainingError
from sql_agent.rollouts import lease
from sql_agent.rollouts.lease import read_lease
from sql_agent.rollouts.store import StoreLostError
from sql_agent.runs.console import Ui
from sql_agent.runs.run_log import RunLog
from sql_agent.schemas import Question
from sql_agent.training import algorithm as training_algorithm
from sql_agent.training.algorithm import TrainingAlgorithm
from tests.support.signals import restored_signals
from tests.support.small_database import make_database


class Algorithm(TrainingAlgorithm):
    """Starts to schedule rollouts, and raises `raised` when it is given."""

    raised: Exception | None = None

    async def _run(self, train: Sequence[Question], val: Sequence[Question]) -> None:
        if self.raised:
            raise self.raised
        await self._start_rollouts([agl.ProxyLLM(endpoint="http://127.0.0.1:9", model="m")])


@pytest.fixture
def algorithm(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Algorithm:
    monkeypatch.setattr(lease, "BEAT_S", 0.02)
    settings = load_settings([f"database.path={make_database(tmp_path / 'medical.db')}", "judge.name=facts"])
    processes: Any = SimpleNamespace(watch=lambda _: None, unwatch=lambda: None)
    return Algorithm(settings, RunLog(tmp_path), Ui(), processes, resume=False)


@pytest.mark.parametrize("call", ["query_workers", "start_rollout"])
async def test_a_store_that_dies_before_the_first_rollout_is_named(
    call: str, algorithm: Algorithm, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = agl.InMemoryLightningStore()

    async def lost(*_: object, **__: object) -> None:
        raise aiohttp.ClientConnectionError("Cannot connect to host")

    monkeypatch.setattr(store, call, lost)
    algorithm.set_store(store)
    algorithm.set_adapter(adapter := agl.TracerTraceToTriplet())
    await algorithm.run([], {})
    assert isinstance(algorithm.error, StoreLostError) and "the store does not answer" in algorithm.error.message
    del adapter


async def test_a_run_that_is_interrupted_after_its_store_was_interrupted(algorithm: Algorithm) -> None:
    algorithm.set_store(agl.InMemoryLightningStore())
    algorithm.raised = StoreLostError("the store does not answer any more")
    algorithm.interrupted = True
    await algorithm.run([], {})
    assert algorithm.error is None


@pytest.mark.parametrize("error", [TrainingError("too many losses"), ZeroDivisionError("a defect")])
async def test_runners_are_told_that_a_run_failed_whatever_ended_it(algorithm: Algorithm, error: Exception) -> None:
    store = agl.InMemoryLightningStore()
    algorithm.set_store(store)
    algorithm.raised = error
    try:
        await algorithm.run([], {})
    except ZeroDivisionError:
        assert not isinstance(error, SqlAgentError)
    found = await read_lease(store)
    assert found is not None and found[0].end == "failed"


async def test_an_interrupt_is_answered_at_once_while_a_store_that_is_stopped_is_waited_for(
    algorithm: Algorithm, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = agl.InMemoryLightningStore()
    waits = asyncio.Event()

    async def silent(*_: object, **__: object) -> None:
        waits.set()
        await asyncio.Event().wait()

    monkeypatch.setattr(store, "query_workers", silent)
    algorithm.set_store(store)
    with restored_signals():
        running = asyncio.create_task(algorithm.run([], {}))
        await waits.wait()
        os.kill(os.getpid(), signal.SIGINT)
        async with asyncio.timeout(5):
            await running
    assert algorithm.interrupted and algorithm.error is None


async def test_a_stall_is_described_in_seconds_also_while_the_store_does_not_answer(
    algorithm: Algorithm, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def silent(*_: object, **__: object) -> None:
        await asyncio.Event().wait()

    store = agl.InMemoryLightningStore()
    monkeypatch.setattr(store, "query_rollouts", silent)
    monkeypatch.setattr(training_algorithm, "_STALL_TIMEOUT_S", 0.05)
    algorithm.set_store(store)
    scheduler: Any = SimpleNamespace(waiting={"ro-1": 61.0})
    algorithm._scheduler = scheduler
    async with asyncio.timeout(5):
        assert "the store did not say why" in (await algorithm._stall() or "")
