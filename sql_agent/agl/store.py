"""Keep a run's rollouts in a store that notifies runners, reports ended rollouts and deletes consumed ones."""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import agentlightning as agl
import aiohttp

from sql_agent.agl.notifier import Notifier
from sql_agent.agl.presence import STORE_ERRORS
from sql_agent.errors import TrainingError

logger = logging.getLogger(__name__)

OnEnd = Callable[[agl.Rollout], None]

_QUEUED = ("queuing", "requeuing")
_STARTED = ("preparing", "running")
_LOST = "lost"  # in a rollout's metadata: why it was lost, as lose_rollouts says
_ENDED = ("succeeded", "failed", "cancelled")
CONSUMED = "/v1/agl/consumed"
_CONSUMED_AT_ONCE = 32
_UNKNOWN_PATH = (404, 405)
_KEPT = 2048  # consumed rollouts that stay in the store, because a span can arrive late


class RunStore(agl.InMemoryLightningStore):  # type: ignore[misc]
    """Calls `notifier.notify` for each queued rollout and `on_end` for each ended one, and deletes consumed ones.

    agent-lightning's store drops old spans, but keeps every rollout and attempt for ever: millions in one night.
    """

    def __init__(self, notifier: Notifier, **options: Any) -> None:
        super().__init__(**options)
        self.on_end: Callable[[agl.Rollout], object] | None = None  # called from whichever thread ended the rollout
        self._notifier = notifier
        self._consumed: deque[str] = deque()

    async def mark_consumed(self, rollout_id: str) -> None:
        """Mark an ended rollout as no longer needed, and delete the one that was marked longest ago."""
        self._consumed.append(rollout_id)
        if len(self._consumed) > _KEPT:
            await self._delete(self._consumed.popleft())

    async def add_many_spans(self, spans: Sequence[agl.Span]) -> Sequence[agl.Span]:
        """Store `spans` without those of deleted rollouts, because one such span would make all the others fail."""
        known = self._start_time_by_rollout
        late = [span for span in spans if span.rollout_id not in known]
        if late:
            logger.info(
                "ignored %d spans of rollouts that were deleted, the first of %s", len(late), late[0].rollout_id
            )
        stored: Sequence[agl.Span] = await super().add_many_spans([s for s in spans if s.rollout_id in known])
        return stored

    async def spans_of(self, rollout_id: str) -> Sequence[agl.Span]:
        """Return the spans of a rollout's only attempt, in any order. Raises TrainingError when they were evicted.

        `query_spans` is not used, because it reads without a lock, while another thread may be adding spans.
        """
        if rollout_id in self._evicted_rollout_span_sets:
            raise TrainingError(
                f"the spans of rollout {rollout_id} were evicted from the store before they were read",
                hint="lower runner.concurrency or runner.n_runners, so that fewer spans wait in the store",
            )
        async with self.collections.atomic(mode="rw", labels=["spans"]) as collections:
            found = await collections.spans.query(filter={"rollout_id": {"exact": rollout_id}})
        spans: Sequence[agl.Span] = found.items
        return spans

    async def _delete(self, rollout_id: str) -> None:
        of_rollout = {"rollout_id": {"exact": rollout_id}}
        labels = ["rollouts", "attempts", "spans", "span_sequence_ids"]
        async with self.collections.atomic(mode="rw", labels=labels) as collections:
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
            if rollout.status in _QUEUED:
                self._notifier.notify()
            elif rollout.status in _ENDED and self.on_end is not None:
                self.on_end(rollout)


class StoreClient(agl.LightningStoreClient):  # type: ignore[misc]
    """Asks a store that is served elsewhere, and says which rollouts were read to one that deletes them."""

    def __init__(self, server_address: str, **options: Any) -> None:
        super().__init__(server_address, **options)
        self._consumed: list[str] = []
        self._forgets = True

    async def mark_consumed(self, rollout_id: str) -> None:
        """Let a store of `sql-agent store` delete an ended rollout later; many are sent in one request.

        A store that does not answer now is asked again with the next rollouts: it only keeps them for longer.
        """
        if not self._forgets:
            return
        self._consumed.append(rollout_id)
        if len(self._consumed) % _CONSUMED_AT_ONCE:
            return
        consumed, self._consumed = self._consumed, []
        try:
            await self._request_json("post", CONSUMED.removeprefix("/v1/agl"), json=consumed)
        except STORE_ERRORS as error:
            if isinstance(error, aiohttp.ClientResponseError) and error.status in _UNKNOWN_PATH:
                self._forgets = False  # it is one of `agl store`, which keeps all rollouts
            else:
                self._consumed = consumed + self._consumed


def is_own(store: Any) -> bool:
    """Return whether `store` is served by this process, so that nobody else uses it."""
    return _own(store) is not None


def subscribe_ended(store: Any, callback: OnEnd) -> bool:
    """Call `callback` on this event loop with each rollout that ends.

    Returns False, and never calls it, when the store is served elsewhere.
    """
    own = _own(store)
    if own is None:
        return False
    loop = asyncio.get_running_loop()
    own.on_end = lambda rollout: loop.call_soon_threadsafe(partial(callback, rollout))
    return True


async def read_spans(store: Any, rollout_id: str) -> Sequence[agl.Span]:
    """Return the spans of a rollout's latest attempt, in any order.

    Raises TrainingError when a run's own store evicted them to free memory.
    """
    own = _own(store)
    spans: Sequence[agl.Span] = await (own.spans_of(rollout_id) if own else store.query_spans(rollout_id, "latest"))
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
    for rollout in await store.query_rollouts(status_in=list(_STARTED)):
        attempt = getattr(rollout, "attempt", None)
        if attempt is not None and is_lost(rollout, attempt.worker_id or ""):
            metadata = (rollout.metadata or {}) | {_LOST: reason}
            await store.update_rollout(rollout.rollout_id, status="failed", metadata=metadata)
            lost += 1
    return lost


async def started_ids(store: agl.LightningStore) -> list[str]:
    """Return the ids of the rollouts that a runner has taken and that have not ended."""
    return [rollout.rollout_id for rollout in await store.query_rollouts(status_in=list(_STARTED))]


def reason_lost(rollout: agl.Rollout) -> str | None:
    """Return why `lose_rollouts` ended `rollout`; None when it did not."""
    return (rollout.metadata or {}).get(_LOST)


async def cancel_stale_rollouts(store: agl.LightningStore) -> int:
    """Cancel the rollouts of an earlier algorithm that have not ended, because its proxy has; returns how many."""
    stale = await store.query_rollouts(status_in=[*_QUEUED, *_STARTED])
    for rollout in stale:
        await store.update_rollout(rollout.rollout_id, status="cancelled")
    return len(stale)


def _own(store: Any) -> RunStore | None:
    """Return the run's own store behind agent-lightning's server; None when the store is served elsewhere."""
    inner = getattr(store, "store", None)
    return inner if isinstance(inner, RunStore) else None
