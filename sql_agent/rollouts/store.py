"""The in-memory store of a run, which reports ended rollouts and deletes rollouts that were read."""

from __future__ import annotations

import asyncio
import logging
from collections import defaultdict, deque
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, nullcontext, suppress
from typing import Any

import agentlightning as agl
from agentlightning.store.collection import InMemoryLightningCollections
from agentlightning.store.collection.base import DuplicatedPrimaryKeyError
from agentlightning.store.collection.memory import ListBasedCollection

from sql_agent.errors import TrainingError
from sql_agent.rollouts.store_protocol import AlgorithmStore

logger = logging.getLogger(__name__)

_ENDED = ("succeeded", "failed", "cancelled")
_SPAN_BYTES = 1400  # estimate for a span without attributes
_MOST_SPAN_BYTES = 256 << 20  # agent-lightning's default is 70 % of the machine's memory
_KEPT = 2048  # rollouts kept after they were read, because a span can arrive late

_NOTHING = nullcontext()


class RunStore(agl.InMemoryLightningStore, AlgorithmStore):  # type: ignore[misc]
    """In-memory store that calls `on_end` for each ended rollout, and deletes rollouts that were read.

    agent-lightning's store deletes old spans, but no rollouts or attempts: millions in one night. All calls must come
    from one event loop.
    """

    def __init__(self) -> None:
        # `thread_safe`, else agent-lightning's server blocks all threads while one call waits.
        super().__init__(thread_safe=True, eviction_memory_threshold=_MOST_SPAN_BYTES, span_size_estimator=_size_of)
        self.collections = OneLoopCollections()
        self.on_end: Callable[[agl.Rollout], object] | None = None
        self._consumed: deque[str] = deque()
        self._running: set[str] = set()  # ids of rollouts whose status is already "running"

    async def mark_consumed(self, rollout_id: str) -> None:
        """Mark an ended rollout as read. If more than 2,048 are marked, delete the one marked first."""
        self._consumed.append(rollout_id)
        if len(self._consumed) > _KEPT:
            await self._delete(self._consumed.popleft())

    async def add_many_spans(self, spans: Sequence[agl.Span]) -> Sequence[agl.Span]:
        """Store and return those `spans` that are new and whose attempt is in the store.

        The base class raises for all spans if one of them belongs to a deleted rollout. It also records a heartbeat per
        attempt, which nothing reads and which took most of the store's time.
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
            with suppress(DuplicatedPrimaryKeyError):  # sent twice, because an answer was lost
                await collections.spans.insert([span])
                await self._account_span_size(span)
                stored.append(span)
        return stored

    async def watch_ended(self, callback: Callable[[agl.Rollout], bool]) -> None:
        """Call `callback` on the running event loop for each rollout that ends, until cancelled."""
        loop = asyncio.get_running_loop()
        self.on_end = lambda rollout: loop.call_soon(callback, rollout)
        try:
            await asyncio.Event().wait()
        finally:
            self.on_end = None

    async def spans_of(self, rollout_id: str) -> Sequence[agl.Span]:
        """Return a rollout's spans, in any order. Raises TrainingError when the store has evicted the spans."""
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
        collections.attempts._items.pop(rollout_id, None)  # otherwise an empty dict remains for each rollout
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
            if rollout.status in _ENDED and self.on_end is not None:
                self.on_end(rollout)


def _size_of(span: agl.Span) -> int:
    """Estimate the bytes of a span in memory, which are mostly its attributes."""
    return _SPAN_BYTES + sum(len(value) for value in (span.attributes or {}).values() if isinstance(value, str))


class OneLoopCollections(InMemoryLightningCollections):  # type: ignore[misc]
    """agent-lightning's in-memory collections without locks and metrics, for a store on one event loop.

    Locks and metrics took a third of the store's time. No lock is needed, because no operation on a collection awaits.
    """

    def __init__(self) -> None:
        super().__init__("asyncio")
        self._unlocked = nullcontext(self)
        self._rollouts = KeyedCollection([], agl.Rollout, ["rollout_id"])
        self._attempts = KeyedCollection([], agl.Attempt, ["rollout_id", "attempt_id"])
        self._spans = KeyedCollection([], agl.Span, ["rollout_id", "attempt_id", "span_id"])
        for untracked in (self.resources, self.workers, self.rollout_queue, self.span_sequence_ids):
            untracked.tracking_context = _untracked

    def atomic(
        self, *, mode: Any = "rw", snapshot: bool = False, labels: Sequence[Any] | None = None, **kwargs: Any
    ) -> AbstractAsyncContextManager[OneLoopCollections]:
        """Return a context manager of these collections."""
        return self._unlocked


class KeyedCollection(ListBasedCollection[Any]):  # type: ignore[misc]
    """Collection that finds an object without a search when a filter has all primary keys."""

    def tracking_context(self, operation: str, collection: str) -> AbstractAsyncContextManager[None]:
        """Return a context manager that measures nothing."""
        return _NOTHING

    async def get(self, filter: Any = None, sort: Any = None) -> Any:  # noqa: A002  as the base class names it
        """Return the first object that matches `filter`, or None."""
        if filter and len(filter) == len(self.primary_keys()):
            with suppress(KeyError):  # no such object, or a filter by other fields
                return self._found(filter)
        return await super().get(filter, sort)

    def _found(self, keys: Mapping[str, Mapping[str, str]]) -> Any:
        found: Any = self._items
        for name in self.primary_keys():
            found = found[keys[name]["exact"]]
        return found


def _untracked(_operation: str, _collection: str) -> AbstractAsyncContextManager[None]:
    return _NOTHING
