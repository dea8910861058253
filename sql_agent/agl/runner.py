"""Run many rollouts at once in the event loop of a runner process."""

from __future__ import annotations

import asyncio
import logging
import os
import secrets
import socket
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from typing import Any

import agentlightning as agl
import aiohttp
from agentlightning.tracer.dummy import DummyTracer

from sql_agent.agl.notifier import Notifier
from sql_agent.agl.presence import Heartbeat
from sql_agent.agl.span_exporter import SpanExporter, make_span
from sql_agent.errors import SqlAgentError

# Enough to fill a runner fast, and few enough to leave some rollouts to the other runners.
_DEQUEUE_LIMIT = 4  # rollouts in one request
_DEQUEUE_PAUSE_S = 0.005  # between two requests


# Of this process and of those forked from it. Containers can have one host's name and the same process ids.
_FAMILY = secrets.token_hex(3)


def worker_id(pid: int) -> str:
    """Return the name under which a store knows the runner process `pid` of this program; no two runners share one."""
    return f"{socket.gethostname()}-{pid}-{_FAMILY}"


class NoTracer(DummyTracer):  # type: ignore[misc]
    """Traces nothing, because the LLM proxy records the model's calls and the agent returns its own spans.

    A real tracer keeps the current rollout in a variable of the process, so it allows one rollout at a time.
    """

    @asynccontextmanager
    async def trace_context(self, *_args: Any, **_kwargs: Any) -> AsyncIterator[None]:
        """Run a rollout without tracing it."""
        yield

    def get_last_trace(self) -> list[Any]:
        """Return no spans."""
        return []


class ConcurrentRunner(agl.LitAgentRunner[Any]):  # type: ignore[misc]
    """Runs up to `concurrency` rollouts at once.

    It asks the store for queued rollouts when `notifier` wakes its `receiver`, else every `poll_s` seconds. A rollout
    waits for the model nearly all of its time, so a process for each would only take memory and start-up time.
    """

    def __init__(self, *, concurrency: int, poll_s: float, notifier: Notifier, receiver: int) -> None:
        super().__init__(tracer=NoTracer(), poll_interval=poll_s)
        self._receiver = receiver
        self._concurrency = concurrency
        self._poll_s = poll_s
        self._notifier = notifier
        self._exporter = SpanExporter()

    def init_worker(self, worker_id: int, store: agl.LightningStore, **kwargs: Any) -> None:
        """Set this process's number and its store, before the first rollout."""
        super().init_worker(worker_id, _RunnerStore(store), **kwargs)

    def get_worker_id(self) -> str:
        """Return the name under which the store knows this process."""
        return worker_id(os.getpid())

    async def iter(self, *, event: Any = None) -> None:
        """Run queued rollouts of the store until `event` is set, then cancel those still running."""
        store = self.get_store()
        # Not the base class's, because that looks at memory and disks each time.
        heartbeat = Heartbeat(store.server_address_root, self.get_worker_id())
        running: set[asyncio.Task[Any]] = set()
        try:
            while event is None or not event.is_set():
                free = min(_DEQUEUE_LIMIT, self._concurrency - len(running))
                dequeued = await store.dequeue_many_rollouts(limit=free, worker_id=self.get_worker_id()) if free else []
                running |= {asyncio.create_task(self._step_impl(rollout)) for rollout in dequeued}
                running = await self._pause(running, poll=not dequeued)
        finally:
            heartbeat.stop()
            for task in running:
                task.cancel()
            await asyncio.gather(*running, return_exceptions=True)

    async def _post_process_rollout_result(self, rollout: Any, raw_result: Any) -> Sequence[Any]:
        """Send the agent's spans in one request, because the base class makes two for each; the store numbers them."""
        spans = [
            make_span(
                span.name,
                span.attributes,
                rollout_id=rollout.rollout_id,
                attempt_id=rollout.attempt.attempt_id,
                seconds=(span.start_time, span.end_time),
            )
            for span in raw_result
        ]
        await self._exporter.send(self.get_store().otlp_traces_endpoint(), spans)
        return []

    async def _pause(self, running: set[asyncio.Task[Any]], *, poll: bool) -> set[asyncio.Task[Any]]:
        """Wait until the store has rollouts again or a running one ends, and return the tasks that still run."""
        if len(running) < self._concurrency:
            if poll:
                await self._notifier.wait(self._receiver, self._poll_s)
            await asyncio.sleep(_DEQUEUE_PAUSE_S)
        else:
            await asyncio.wait(running, timeout=self._poll_s, return_when=asyncio.FIRST_COMPLETED)
        return {task for task in running if not task.done()}


class _LostStoreInALine(logging.Filter):
    """Shortens what the base class logs when the store does not answer: the traceback says no more than the error."""

    def filter(self, record: logging.LogRecord) -> bool:
        """Replace the traceback of a lost connection by its error; every record passes."""
        error = record.exc_info[1] if record.exc_info else None
        if isinstance(error, aiohttp.ClientError | ConnectionError | SqlAgentError):
            record.msg, record.args = f"{record.getMessage()} {type(error).__name__}: {error}", ()
            record.exc_info = None
        return True


logging.getLogger("agentlightning.runner.agent").addFilter(_LostStoreInALine())


class _RunnerStore:
    """Caches the store's resources by their id, because the resources of an id do not change."""

    def __init__(self, store: agl.LightningStore) -> None:
        self._store = store
        self._resources: dict[str, agl.ResourcesUpdate] = {}

    def __getattr__(self, name: str) -> Any:
        return getattr(self._store, name)

    async def get_resources_by_id(self, resources_id: str) -> agl.ResourcesUpdate | None:
        """Return the resources of an id, from the store only the first time; None when there are none."""
        if resources_id not in self._resources:
            found = await self._store.get_resources_by_id(resources_id)
            if found is None:
                return None
            self._resources[resources_id] = found
        return self._resources[resources_id]
