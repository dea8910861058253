"""Keep a run's rollouts in a store that notifies runners, reports ended rollouts and deletes consumed ones."""

from __future__ import annotations

import asyncio
import logging
from collections import defaultdict, deque
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager, suppress
from typing import Any

import agentlightning as agl
from agentlightning.store.collection.base import DuplicatedPrimaryKeyError

from sql_agent.errors import TrainingError
from sql_agent.rollouts.exchange import REFUSED, STARTED
from sql_agent.rollouts.notifier import Notifier
from sql_agent.rollouts.store_client import StoreClient
from sql_agent.rollouts.store_collections import OneLoopCollections

logger = logging.getLogger(__name__)

OnEnd = Callable[[agl.Rollout], bool]  # returns whether anybody waits for the rollout

_QUEUED = ("queuing", "requeuing")
_LOST = "lost"  # in a rollout's metadata: why it was lost, as lose_rollouts says
_ENDED = ("succeeded", "failed", "cancelled")
_SPAN_BYTES = 1400  # of a span without attributes
_KEPT = 2048  # consumed rollouts that stay in the store, because a span can arrive late


class RunStore(agl.InMemoryLightningStore):  # type: ignore[misc]
    """Calls `notifier.notify` for each queued rollout and `on_end` for each ended one, and deletes consumed ones.

    agent-lightning's store drops old spans, but keeps every rollout and attempt for ever: millions in one night. All
    calls must come from one event loop.
    """

    def __init__(self, notifier: Notifier, **options: Any) -> None:
        # Called safe for threads, because its server would else hold a lock of threads while a call waits.
        super().__init__(thread_safe=True, span_size_estimator=_size_of, **options)
        self.collections = OneLoopCollections()
        self.on_end: Callable[[agl.Rollout], object] | None = None
        self._notifier = notifier
        self._consumed: deque[str] = deque()
        self._running: set[str] = set()  # rollouts that are known to have started

    async def mark_consumed(self, rollout_id: str) -> None:
        """Mark an ended rollout as no longer needed, and delete the one that was marked longest ago."""
        self._consumed.append(rollout_id)
        if len(self._consumed) > _KEPT:
            await self._delete(self._consumed.popleft())

    async def add_many_spans(self, spans: Sequence[agl.Span]) -> Sequence[agl.Span]:
        """Store those `spans` whose attempt is known and that are new, and return them.

        The base class notes a sign of life for each attempt, which nothing asks for and which was most of the store's
        time. One span of a deleted rollout would make all the others fail there.
        """
        attempts: defaultdict[tuple[str, str], list[agl.Span]] = defaultdict(list)
        for span in spans:
            attempts[span.rollout_id, span.attempt_id].append(span)
        stored: list[agl.Span] = []
        for (rollout_id, attempt_id), group in attempts.items():
            stored += await self._add_of_attempt(rollout_id, attempt_id, group)
        await self._maybe_evict_spans(self.collections)
        started = {span.rollout_id: span.attempt_id for span in stored if span.rollout_id not in self._running}
        for rollout_id, attempt_id in started.items():
            self._running.add(rollout_id)
            if (update := await self._on_attempt_heartbeat(rollout_id, attempt_id)) is not None:
                await self._post_update_rollout([update])
        return stored

    async def _add_of_attempt(self, rollout_id: str, attempt_id: str, spans: Sequence[agl.Span]) -> list[agl.Span]:
        collections = self.collections
        of_attempt = {"rollout_id": {"exact": rollout_id}, "attempt_id": {"exact": attempt_id}}
        if await collections.attempts.get(filter=of_attempt) is None:
            logger.info("ignored %d spans of attempt %s of rollout %s", len(spans), attempt_id, rollout_id)
            return []
        await collections.span_sequence_ids.chmax(rollout_id, max(span.sequence_id for span in spans))
        stored = []
        for span in spans:
            with suppress(DuplicatedPrimaryKeyError):  # it was sent again, because the answer was lost
                await collections.spans.insert([span])
                await self._account_span_size(span)
                stored.append(span)
        return stored

    async def is_started(self, rollout_id: str) -> bool:
        """Return whether a rollout was taken and has not ended."""
        rollout = await self.get_rollout_by_id(rollout_id)
        return rollout is not None and rollout.status in STARTED

    async def spans_of(self, rollout_id: str) -> Sequence[agl.Span]:
        """Return the spans of a rollout's only attempt, in any order. Raises TrainingError when they were evicted."""
        if rollout_id in self._evicted_rollout_span_sets:
            raise TrainingError(
                f"the spans of rollout {rollout_id} were evicted from the store before they were read",
                hint="lower runner.concurrency or runner.n_runners, so that fewer spans wait in the store",
            )
        found = await self.collections.spans.query(filter={"rollout_id": {"exact": rollout_id}})
        spans: Sequence[agl.Span] = found.items
        return spans

    async def _delete(self, rollout_id: str) -> None:
        collections = self.collections
        of_rollout = {"rollout_id": {"exact": rollout_id}}
        await self._evict_spans_for_rollout(collections, rollout_id)
        for collection in (collections.attempts, collections.rollouts):
            await collection.delete((await collection.query(filter=of_rollout)).items)
        collections.attempts._items.pop(rollout_id, None)  # else an empty dict stays under its id
        await collections.span_sequence_ids.pop(rollout_id)
        self._evicted_rollout_span_sets.discard(rollout_id)
        self._start_time_by_rollout.pop(rollout_id, None)
        self._completion_events.pop(rollout_id, None)
        self._running.discard(rollout_id)

    async def _post_update_rollout(
        self, rollouts: Sequence[tuple[agl.Rollout, Sequence[str]]], skip_enqueue: bool = False
    ) -> None:
        await super()._post_update_rollout(rollouts, skip_enqueue=skip_enqueue)
        for rollout, _ in rollouts:
            if rollout.status in _QUEUED:
                self._notifier.notify()
            elif rollout.status in _ENDED and self.on_end is not None:
                self.on_end(rollout)


def _size_of(span: agl.Span) -> int:
    """Estimate the bytes of a span in memory: its attributes are nearly all of it."""
    return _SPAN_BYTES + sum(len(value) for value in (span.attributes or {}).values() if isinstance(value, str))


def is_own(store: Any) -> bool:
    """Return whether `store` is served by this process, so that nobody else uses it."""
    return _own(store) is not None


@asynccontextmanager
async def subscribed_to_ends(store: Any, callback: OnEnd) -> AsyncIterator[Callable[[], bool]]:
    """Call `callback` on this event loop with each rollout that ends inside the context.

    Yields a function that returns whether the store can tell, which one of `agl store` cannot.
    """
    own = _own(store)
    if own is not None:
        loop = asyncio.get_running_loop()
        own.on_end = lambda rollout: loop.call_soon(callback, rollout)
        yield lambda: True
    elif isinstance(store, StoreClient):
        watch = asyncio.create_task(store.watch_ended(callback))
        try:
            yield lambda: not watch.done()
        finally:
            watch.cancel()
    else:
        yield lambda: False


async def read_spans(store: Any, rollout_id: str) -> Sequence[agl.Span]:
    """Return the spans of a rollout's latest attempt, in any order.

    Raises TrainingError when a run's own store evicted them to free memory.
    """
    source = _own(store) or store
    if isinstance(source, RunStore | StoreClient):
        return await source.spans_of(rollout_id)
    spans: Sequence[agl.Span] = await source.query_spans(rollout_id, "latest")
    return spans


async def mark_consumed(store: Any, rollout_id: str) -> None:
    """Let a run's own store, or one of `sql-agent store`, delete an ended rollout later; `agl store` keeps all."""
    own = _own(store) or store
    if isinstance(own, RunStore | StoreClient):
        await own.mark_consumed(rollout_id)


async def lose_rollouts(store: agl.LightningStore, reason: str, *, is_lost: Callable[[agl.Rollout, str], bool]) -> int:
    """End the started rollouts of which `is_lost` is true as failed, because of `reason`; returns how many there were.

    `is_lost` gets a rollout and the id of the worker that runs it.
    """
    lost = 0
    for rollout in await store.query_rollouts(status_in=list(STARTED)):
        attempt = getattr(rollout, "attempt", None)
        if attempt is not None and is_lost(rollout, attempt.worker_id or ""):
            metadata = (rollout.metadata or {}) | {_LOST: reason}
            await store.update_rollout(rollout.rollout_id, status="failed", metadata=metadata)
            lost += 1
    return lost


async def started_ids(store: agl.LightningStore) -> list[str]:
    """Return the ids of the rollouts that a runner has taken and that have not ended."""
    return [rollout.rollout_id for rollout in await store.query_rollouts(status_in=list(STARTED))]


def reason_lost(rollout: agl.Rollout) -> str | None:
    """Return why `lose_rollouts` ended `rollout`; None when it did not."""
    return (rollout.metadata or {}).get(_LOST)


def reason_refused(rollout: agl.Rollout) -> str | None:
    """Return why the store refused the end of `rollout`; None when it did not."""
    return (rollout.metadata or {}).get(REFUSED)


async def cancel_stale_rollouts(store: agl.LightningStore) -> int:
    """Cancel the rollouts of an earlier algorithm that have not ended, because its proxy has; returns how many."""
    stale = await store.query_rollouts(status_in=[*_QUEUED, *STARTED])
    for rollout in stale:
        await store.update_rollout(rollout.rollout_id, status="cancelled")
    return len(stale)


def _own(store: Any) -> RunStore | None:
    """Return the run's own store behind agent-lightning's server; None when the store is served elsewhere."""
    inner = getattr(store, "store", None)
    return inner if isinstance(inner, RunStore) else None
