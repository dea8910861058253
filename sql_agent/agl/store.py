"""The store of a run's own: it wakes the runners, says what ended, and forgets what was read."""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import agentlightning as agl

from sql_agent.agl.notifier import Notifier
from sql_agent.errors import TrainingError

logger = logging.getLogger(__name__)

OnEnd = Callable[[agl.Rollout], None]

_QUEUED = ("queuing", "requeuing")
_ENDED = ("succeeded", "failed", "cancelled")
_KEPT = 2048  # rollouts that were read and are still there: a span can come late


class RunStore(agl.InMemoryLightningStore):  # type: ignore[misc]
    """A run's own store: rings `notifier` for each rollout that is queued, and tells of those that end.

    agent-lightning's drops old spans, but keeps every rollout and attempt for ever. A night is millions of them.
    """

    def __init__(self, notifier: Notifier, **options: Any) -> None:
        super().__init__(**options)
        self.on_end: Callable[[agl.Rollout], object] | None = None  # called from whichever thread ended the rollout
        self._notifier = notifier
        self._read: deque[str] = deque()

    async def mark_consumed(self, rollout_id: str) -> None:
        """Hear that nobody will ask for this ended rollout again; forgets the one that was read longest ago."""
        self._read.append(rollout_id)
        if len(self._read) > _KEPT:
            await self._forget(self._read.popleft())

    async def add_many_spans(self, spans: Sequence[agl.Span]) -> Sequence[agl.Span]:
        """Store `spans`, without those of forgotten rollouts: one such span would cost all the others."""
        known = self._start_time_by_rollout
        late = [span for span in spans if span.rollout_id not in known]
        if late:
            logger.info("%d spans came too late, the first for rollout %s", len(late), late[0].rollout_id)
        stored: Sequence[agl.Span] = await super().add_many_spans([s for s in spans if s.rollout_id in known])
        return stored

    async def spans_of(self, rollout_id: str) -> Sequence[agl.Span]:
        """The spans of a rollout's only attempt. `query_spans` reads without a lock what another thread may add to."""
        if rollout_id in self._evicted_rollout_span_sets:
            raise TrainingError(f"the spans of rollout {rollout_id} had to make room before they were read")
        async with self.collections.atomic(mode="rw", labels=["spans"]) as collections:
            found = await collections.spans.query(filter={"rollout_id": {"exact": rollout_id}})
        spans: Sequence[agl.Span] = found.items
        return spans

    async def _forget(self, rollout_id: str) -> None:
        mine = {"rollout_id": {"exact": rollout_id}}
        labels = ["rollouts", "attempts", "spans", "span_sequence_ids"]
        async with self.collections.atomic(mode="rw", labels=labels) as collections:
            await self._evict_spans_for_rollout(collections, rollout_id)
            for table in (collections.attempts, collections.rollouts):
                await table.delete((await table.query(filter=mine)).items)
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
            if rollout.status in _QUEUED:
                self._notifier.notify()
            elif rollout.status in _ENDED and self.on_end is not None:
                self.on_end(rollout)


def subscribe_ended(store: Any, listener: OnEnd) -> bool:
    """Have `listener` called on this event loop with each rollout that ends; False if `store` is not a run's own."""
    own = _own(store)
    if own is None:
        return False
    loop = asyncio.get_running_loop()
    own.on_end = lambda rollout: loop.call_soon_threadsafe(partial(listener, rollout))
    return True


async def read_spans(store: Any, rollout_id: str) -> Sequence[agl.Span]:
    """The spans of a rollout's latest attempt, in any order."""
    own = _own(store)
    spans: Sequence[agl.Span] = await (own.spans_of(rollout_id) if own else store.query_spans(rollout_id, "latest"))
    return spans


async def mark_consumed(store: Any, rollout_id: str) -> None:
    """Let a run's own store forget an ended rollout in due course; a store served elsewhere keeps all."""
    own = _own(store)
    if own is not None:
        await own.mark_consumed(rollout_id)


async def cancel_stale_rollouts(store: agl.LightningStore) -> int:
    """Cancel what an earlier algorithm left in the queue: it would run against a proxy that is gone."""
    stale = await store.query_rollouts(status_in=["queuing", "requeuing"])
    for rollout in stale:
        await store.update_rollout(rollout.rollout_id, status="cancelled")
    return len(stale)


def without_request_log(store: Any) -> None:
    """Take the layers that time and log each request out of a run's own store server: they are half of its work."""
    if isinstance(store, agl.LightningStoreServer) and store.app is not None:
        store.app.user_middleware.clear()
        store.app.middleware_stack = store.app.build_middleware_stack()


def _own(store: Any) -> RunStore | None:
    """The run's own store behind agent-lightning's server for it, if it is one."""
    inner = getattr(store, "store", None)
    return inner if isinstance(inner, RunStore) else None
