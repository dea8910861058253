"""Run many rollouts at once in the event loop of a runner process."""

from __future__ import annotations

import asyncio
import logging
import os
import secrets
import socket
import time
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager, suppress
from functools import partial
from typing import Any

import agentlightning as agl
import aiohttp
from agentlightning.tracer.dummy import DummyTracer

from sql_agent.errors import SqlAgentError
from sql_agent.rollouts.exchange import EndedAttempt
from sql_agent.rollouts.gathering import gathering_s
from sql_agent.rollouts.notifier import Notifier
from sql_agent.rollouts.presence import STORE_ERRORS, Heartbeat
from sql_agent.rollouts.run_role import StoreAddress
from sql_agent.rollouts.store_client import StoreClient, is_refusal
from sql_agent.system.outage import Outage

# Enough to fill a runner fast, and few enough to leave some rollouts to the other runners.
_DEQUEUE_LIMIT = 4  # rollouts in one request, or as many as it ends
POLL_S = 0.2  # between two requests to a store that runs elsewhere
_DEQUEUE_PAUSE_S = 0.005  # between two requests while the queue has rollouts

logger = logging.getLogger(__name__)

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

    One request to the store reports the rollouts that ended and asks for others: soon after a rollout ended or
    `notifier` woke its `receiver`, else every POLL_S seconds. A rollout waits for the model nearly all of its time, so
    a process for each would only take memory and start-up time.
    """

    def __init__(self, *, concurrency: int, notifier: Notifier, receiver: int) -> None:
        super().__init__(tracer=NoTracer(), poll_interval=POLL_S)
        self._receiver = receiver
        self._concurrency = concurrency
        self._notifier = notifier

    def init_worker(self, worker_id: int, store: StoreClient, **kwargs: Any) -> None:
        """Set this process's number and its store, before the first rollout."""
        super().init_worker(worker_id, _RunnerStore(store), **kwargs)

    def get_worker_id(self) -> str:
        """Return the name under which the store knows this process."""
        return worker_id(os.getpid())

    async def iter(self, *, event: Any = None) -> None:
        """Run queued rollouts of the store until `event` is set, then cancel those still running."""
        store: _RunnerStore = self.get_store()
        # Not the base class's, because that looks at memory and disks each time.
        heartbeat = Heartbeat(StoreAddress(store.server_address_root, store.token), self.get_worker_id())
        self._notifier.listen(self._receiver, store.changed.set)
        running: set[asyncio.Task[Any]] = set()
        try:
            while event is None or not event.is_set():
                running = {task for task in running if not task.done()}
                asked, limit = time.monotonic(), self._limit(len(store.ended), len(running))
                dequeued = await store.exchange(self.get_worker_id(), limit)
                running |= {asyncio.create_task(self._step_impl(rollout)) for rollout in dequeued}
                if limit and len(dequeued) == limit and len(running) < self._concurrency:
                    await asyncio.sleep(_DEQUEUE_PAUSE_S)
                else:
                    await self._next_change(store.changed, took_s=time.monotonic() - asked)
        finally:
            heartbeat.stop()
            for task in running:
                task.cancel()
            await asyncio.gather(*running, return_exceptions=True)

    def _limit(self, ended: int, running: int) -> int:
        return min(max(_DEQUEUE_LIMIT, ended), self._concurrency - running)

    async def _next_change(self, changed: asyncio.Event, *, took_s: float) -> None:
        """Wait until rollouts end or are queued, and then for more of them; the last request took `took_s` seconds."""
        with suppress(TimeoutError):
            await asyncio.wait_for(changed.wait(), POLL_S)
            await asyncio.sleep(gathering_s(took_s))
        changed.clear()

    async def _post_process_rollout_result(self, rollout: Any, raw_result: Any) -> Sequence[Any]:
        """Keep the agent's spans until the rollout's end is reported, because the base class sends each by itself."""
        self.get_store().spans[rollout.rollout_id] = raw_result
        return []


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
    """Keeps the ends of rollouts for the next exchange with `store`, and its resources, which do not change.

    `changed` is set when there is an end; `spans` holds those of rollouts that are about to end.
    """

    def __init__(self, store: StoreClient) -> None:
        self.changed = asyncio.Event()
        self.ended: list[EndedAttempt] = []
        self.spans: dict[str, Sequence[agl.Span]] = {}
        self._store = store
        self._resources: dict[str, agl.ResourcesUpdate] = {}
        self._refusal = Outage(f"The store at {store.server_address_root}", partial(print, flush=True))

    def __getattr__(self, name: str) -> Any:
        return getattr(self._store, name)

    async def exchange(self, worker: str, limit: int) -> Sequence[agl.AttemptedRollout]:
        """Report what ended, and return up to `limit` rollouts; what a store did not take is kept for the next time."""
        if not self.ended and not limit:
            return []
        ended, self.ended = self.ended, []
        try:
            taken = await self._store.exchange(ended, worker_id=worker, limit=limit)
        except (*STORE_ERRORS, ValueError) as error:
            # Not a warning, because they are reported again, and the store may end first when a run is stopped.
            logger.info("the store did not take %d ended rollouts: %r", len(ended), error)
            self.ended = ended + self.ended
            if isinstance(error, ValueError) or (
                isinstance(error, aiohttp.ClientResponseError) and is_refusal(error.status)
            ):
                self._refusal.begin(f"gives a runner no rollouts: {type(error).__name__}: {error}; it is asked again")
            return []
        self._refusal.end()
        return taken

    async def update_attempt(self, rollout_id: str, attempt_id: str, status: Any) -> None:
        """Keep the end of an attempt, with its spans."""
        spans = self.spans.pop(rollout_id, ())
        self.ended.append(EndedAttempt(rollout_id=rollout_id, attempt_id=attempt_id, status=status, spans=spans))
        self.changed.set()

    async def get_resources_by_id(self, resources_id: str) -> agl.ResourcesUpdate | None:
        """Return the resources of an id, from the store only the first time; None when there are none."""
        if resources_id not in self._resources:
            found = await self._store.get_resources_by_id(resources_id)
            if found is None:
                return None
            self._resources[resources_id] = found
        return self._resources[resources_id]
