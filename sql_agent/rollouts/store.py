"""The store of a run, in memory: reports ended rollouts and deletes consumed ones."""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Callable, Sequence
from contextlib import suppress

import agentlightning as agl
from agentlightning.store.collection import InMemoryLightningCollections
from agentlightning.store.collection.base import DuplicatedPrimaryKeyError

from sql_agent.errors import TrainingError
from sql_agent.rollouts.store_protocol import AlgorithmStore

logger = logging.getLogger(__name__)

_ENDED = ("succeeded", "failed", "cancelled")
_SPAN_BYTES = 1400  # of a span without attributes
_MOST_SPAN_BYTES = 256 << 20  # agent-lightning's default is 70 % of the memory
_KEPT = 2048  # consumed rollouts that stay in the store, because a runner may report an end twice


class RunStore(agl.InMemoryLightningStore, AlgorithmStore):  # type: ignore[misc]
    """Calls `on_end` for each ended rollout, and deletes consumed rollouts.

    agent-lightning's store drops old spans but never a rollout or an attempt: millions in one night. All calls must
    come from one event loop.
    """

    def __init__(self) -> None:
        # `thread_safe`, because the server of agent-lightning's other stores locks threads out while a call waits.
        super().__init__(thread_safe=True, eviction_memory_threshold=_MOST_SPAN_BYTES, span_size_estimator=_size_of)
        self.collections = InMemoryLightningCollections("asyncio")
        self.on_end: Callable[[agl.Rollout], object] | None = None
        self._consumed: deque[str] = deque()

    async def mark_consumed(self, rollout_id: str) -> None:
        """Mark an ended rollout as no longer needed, and delete the one that was marked longest ago."""
        self._consumed.append(rollout_id)
        if len(self._consumed) > _KEPT:
            await self._delete(self._consumed.popleft())

    async def add_many_spans(self, spans: Sequence[agl.Span]) -> Sequence[agl.Span]:
        """Store the `spans` that are new and whose attempt is in the store, and return them.

        The base class also records a heartbeat for each attempt, which nothing reads and which took most of the store's
        time, and one span of a deleted rollout makes all the others fail there.
        """
        collections = self.collections
        stored: list[agl.Span] = []
        for span in spans:
            attempt = {"rollout_id": {"exact": span.rollout_id}, "attempt_id": {"exact": span.attempt_id}}
            if await collections.attempts.get(filter=attempt) is None:
                logger.info("ignored a span of attempt %s of rollout %s", span.attempt_id, span.rollout_id)
                continue
            await collections.span_sequence_ids.chmax(span.rollout_id, span.sequence_id)
            with suppress(DuplicatedPrimaryKeyError):  # sent again, because the answer was lost
                await collections.spans.insert([span])
                await self._account_span_size(span)
                stored.append(span)
        await self._maybe_evict_spans(collections)
        return stored

    async def watch_ended(self, callback: Callable[[agl.Rollout], bool]) -> None:
        """Call `callback` on this event loop with each rollout that ends, until cancelled."""
        loop = asyncio.get_running_loop()
        self.on_end = lambda rollout: loop.call_soon(callback, rollout)
        try:
            await asyncio.Event().wait()
        finally:
            self.on_end = None

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

    async def _post_update_rollout(
        self, rollouts: Sequence[tuple[agl.Rollout, Sequence[str]]], skip_enqueue: bool = False
    ) -> None:
        await super()._post_update_rollout(rollouts, skip_enqueue=skip_enqueue)
        for rollout, _ in rollouts:
            if rollout.status in _ENDED and self.on_end is not None:
                self.on_end(rollout)


def _size_of(span: agl.Span) -> int:
    """Estimate the bytes of a span in memory: its attributes are nearly all of it."""
    return _SPAN_BYTES + sum(len(value) for value in (span.attributes or {}).values() if isinstance(value, str))
