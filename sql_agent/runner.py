"""The runner process: many rollouts at once in one event loop."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import agentlightning as agl
from agentlightning.tracer.dummy import DummyTracer

_AT_ONCE = 4  # rollouts taken in one request: enough to fill up fast, few enough to leave some for other runners


class NoTracer(DummyTracer):  # type: ignore[misc]
    """Traces nothing: the model's calls are recorded by the LLM proxy, and the agent returns its own spans.

    A tracer proper keeps the current rollout in a process-wide place, so it allows one rollout at a time.
    """

    @asynccontextmanager
    async def trace_context(self, *_args: Any, **_kwargs: Any) -> AsyncIterator[None]:
        yield

    def get_last_trace(self) -> list[Any]:
        return []


class ConcurrentRunner(agl.LitAgentRunner[Any]):  # type: ignore[misc]
    """Runs up to `concurrency` rollouts at once; asks the store every `poll_s` seconds while there is room.

    A rollout spends nearly all its time waiting for the model, so a process of its own for each would only cost
    memory and start-up time.
    """

    def __init__(self, *, concurrency: int, poll_s: float) -> None:
        super().__init__(tracer=NoTracer(), poll_interval=poll_s)
        self._concurrency = concurrency
        self._poll_s = poll_s

    async def iter(self, *, event: Any = None) -> None:
        """Take rollouts from the store until `event` is set, then cancel those still running."""
        store = self.get_store()
        stop_heartbeat = self._start_heartbeat_loop(store)
        running: set[asyncio.Task[Any]] = set()
        try:
            while event is None or not event.is_set():
                room = min(_AT_ONCE, self._concurrency - len(running))
                taken = await store.dequeue_many_rollouts(limit=room, worker_id=self.get_worker_id()) if room else []
                running |= {asyncio.create_task(self._step_impl(rollout)) for rollout in taken}
                running = await self._pause(running, poll=not taken)
        finally:
            for task in running:
                task.cancel()
            await asyncio.gather(*running, return_exceptions=True)
            if stop_heartbeat is not None:
                await stop_heartbeat()

    async def _pause(self, running: set[asyncio.Task[Any]], *, poll: bool) -> set[asyncio.Task[Any]]:
        """Sleep: for one poll when the queue was empty, or until a slot is free; returns the tasks that still run."""
        if len(running) < self._concurrency:
            await asyncio.sleep(self._poll_s if poll else 0.0)
        else:
            await asyncio.wait(running, timeout=self._poll_s, return_when=asyncio.FIRST_COMPLETED)
        return {task for task in running if not task.done()}
