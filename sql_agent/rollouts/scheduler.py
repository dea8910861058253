"""Run rollouts through the store: enqueue them, wait for their ends, read their spans, run lost rollouts again."""

from __future__ import annotations

import asyncio
import itertools
import time
from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Literal, Protocol

import agentlightning as agl

from sql_agent.config.settings import Settings
from sql_agent.errors import TrainingError
from sql_agent.rollouts.group_ranking import GroupBarrier
from sql_agent.rollouts.spans import complete_spans, read_rollout
from sql_agent.rollouts.store import LOST, STARTED, RunStore, StoreLostError, named_store_errors
from sql_agent.rollouts.trajectory import FinishedRollout, turns_of
from sql_agent.schemas import Drop, DropCause, Question

Mode = Literal["train", "val"]
_POLL_S = 0.02
_PROXY_DEATH_CAUSES = {DropCause.MODEL_SERVER, DropCause.SPANS}  # of rollouts whose proxy may have died
_REPORTED_S = 0.5  # time after which the supervisor has reported a dead process
_IDLE_SHARE = 3.0  # pause after a poll, as a multiple of the poll's duration
_LONGEST_IDLE_S = 2.0  # maximum of this pause, even if the store was stopped for minutes
_ENQUEUED_AT_ONCE = 32  # limit of concurrent requests, so that `watch` and the lease still get connections
_GROUPS_KEPT = 4096  # maximum number of groups whose proxy is cached: more than run at once
_NOTIFIED_POLL_S = 2.0  # pause between two polls of a store whose callback reports ends
_CANCEL_S = 2.0  # time limit of the request that cancels a rollout
_LOOK_S = 5.0  # pause between two checks for rollouts that run for too long
_SHOWN = 3  # maximum number of rollouts named in the message about a stall


@dataclass(frozen=True)
class RolloutRequest:
    """A request for a rollout of `question` in training step `step`; rewards are compared within `group`."""

    question: Question
    mode: Mode
    step: int
    group: str


class RolloutScheduler:
    """Runs rollouts through `store`; `watch` must run in a task meanwhile.

    `adapter` turns spans into triplets. `resources` are the store's ids of the LLM proxies; all rollouts of a group use
    the same proxy. A rollout is given up after `runner.rollout_timeout_s` seconds; all rollouts are given up if none
    has ended for twice as long.
    """

    def __init__(self, store: agl.LightningStore, adapter: Any, resources: Sequence[str], settings: Settings) -> None:
        self._store = store
        self._adapter = adapter
        routes = itertools.cycle(resources)
        # A group uses one proxy, so that the policy's cache contains the group's common prefix. A step cannot have one
        # proxy, because steps of verl's asynchronous trainers overlap.
        self._route_of = lru_cache(_GROUPS_KEPT)(lambda _group: next(routes))
        self._timeout_s = settings.runner.rollout_timeout_s
        self._train_roles = settings.agent.train_roles
        self._enqueuing = asyncio.Semaphore(_ENQUEUED_AT_ONCE)
        # By rollout id; a Drop is why the rollout was given up.
        self._waiting: dict[str, asyncio.Future[agl.Rollout | Drop]] = {}
        self._running: dict[str, float] = {}  # {rollout id: time when it was first seen running}
        self._last_end = self._last_look = time.monotonic()
        self._deaths: dict[str, tuple[float, str]] = {}  # {resource id: last death of its proxy}

    @property
    def waiting(self) -> dict[str, float]:
        """{rollout id: seconds since it was first seen running} for all unfinished rollouts."""
        now = time.monotonic()
        return {rollout_id: now - self._running.get(rollout_id, now) for rollout_id in self._waiting}

    async def run(self, request: RolloutRequest) -> FinishedRollout:
        """Run a rollout once, and return it; if it was lost, its `dropped` is set."""
        resource, started = self._route_of(request.group), time.monotonic()
        rollout_id = await self._enqueue(request, resource)
        ended = await self._ended_rollout(rollout_id)
        drop = ended if isinstance(ended, Drop) else None
        if not isinstance(ended, Drop) and (reason := (ended.metadata or {}).get(LOST)):
            drop = Drop(cause=DropCause.PROCESS, detail=reason)
        if drop is None:
            try:
                spans, missing = await complete_spans(self._store, rollout_id)
            except Exception as error:  # an error of the store loses only this rollout
                drop = Drop(cause=DropCause.STORE, detail=f"{type(error).__name__}: {error}")
        if drop is not None:
            return FinishedRollout.lost(rollout_id, request.group, drop)
        turns = turns_of(self._adapter.adapt(spans), self._train_roles)
        finished = read_rollout(ended, request.group, spans, missing, turns)
        if finished.dropped is not None and finished.dropped.cause in _PROXY_DEATH_CAUSES:
            await asyncio.sleep(_REPORTED_S)
            died, reason = self._deaths.get(resource, (0.0, ""))
            if died > started - _REPORTED_S:
                drop = Drop(cause=DropCause.PROCESS, detail=reason)
                return FinishedRollout.lost(rollout_id, request.group, drop)
        return finished

    def route_died(self, resources: Collection[str], reason: str) -> None:
        """Record that the proxy with the ids `resources` died; its lost rollouts are dropped for `reason`."""
        self._deaths |= dict.fromkeys(resources, (time.monotonic(), reason))

    async def watch(self) -> None:
        """Find ended rollouts, by the store's callback or by polling, and wake their `run` calls, until cancelled.

        Raises StoreLostError, also in every waiting `run`, when the store is lost.
        """
        try:
            with named_store_errors():
                await self._watch()
        except StoreLostError as error:
            for future in self._waiting.values():
                if not future.done():
                    future.set_exception(error)
            raise

    async def _watch(self) -> None:
        poll_s = _POLL_S
        if isinstance(self._store, RunStore):
            loop, poll_s = asyncio.get_running_loop(), _NOTIFIED_POLL_S
            self._store.on_end = lambda rollout: loop.call_soon(self._end, rollout)
        while True:
            asked = time.monotonic()
            if self._waiting:
                # Polled here, because the store's client refuses a timeout above 0.1 s.
                for rollout in await self._store.wait_for_rollouts(rollout_ids=list(self._waiting), timeout=0.0):
                    self._end(rollout)
                await self._give_up_slow()
            # A slow store is polled less often, because all requests share its single thread.
            idle_s = min(_IDLE_SHARE * (time.monotonic() - asked), _LONGEST_IDLE_S)
            await asyncio.sleep(max(poll_s, idle_s))

    async def _enqueue(self, request: RolloutRequest, resource: str) -> str:
        """Queue a rollout with one attempt: a second attempt could hang if a late span revived the first."""
        with named_store_errors():
            async with self._enqueuing:
                rollout = await self._store.enqueue_rollout(
                    input=request.question.model_dump(mode="json"),
                    mode=request.mode,
                    resources_id=resource,
                    config=agl.RolloutConfig(max_attempts=1),
                    metadata={"group": request.group},
                )
        return str(rollout.rollout_id)

    async def _cancel(self, rollout_id: str) -> None:
        # `watch` reports a lost store. The next algorithm cancels the rollouts left in the store.
        with suppress(StoreLostError), named_store_errors():
            async with asyncio.timeout(_CANCEL_S):
                await self._store.update_rollout(rollout_id, status="cancelled")

    async def _ended_rollout(self, rollout_id: str) -> agl.Rollout | Drop:
        """Wait until a rollout ends, and return it; return a Drop if the rollout was given up.

        If the rollout was given up or the caller is cancelled, the rollout is cancelled in the store.
        """
        if not self._waiting:
            self._last_end = time.monotonic()
        future = self._waiting[rollout_id] = asyncio.get_running_loop().create_future()
        ended: agl.Rollout | Drop | None = None
        try:
            ended = await future
        finally:
            if ended is None or isinstance(ended, Drop):
                self._waiting.pop(rollout_id, None)
                await self._cancel(rollout_id)
        return ended

    def _end(self, rollout: agl.Rollout) -> None:
        future = self._waiting.pop(rollout.rollout_id, None)
        if future is not None and not future.done():
            self._last_end = time.monotonic()
            future.set_result(rollout)

    async def _give_up_slow(self) -> None:
        """Give up the rollouts that have run for too long, and all rollouts if none has ended for too long.

        The store's own time limits are not used, because setting the system clock forward ended all rollouts.
        """
        now = time.monotonic()
        if now - self._last_end > 2 * self._timeout_s:
            self._give_up(list(self._waiting), f"nothing ended for {2 * self._timeout_s:g} s")
        if now - self._last_look < _LOOK_S:
            return
        self._last_look = now
        running = [rollout.rollout_id for rollout in await self._store.query_rollouts(status_in=list(STARTED))]
        self._running = {each: self._running.get(each, now) for each in running if each in self._waiting}
        slow = [each for each, since in self._running.items() if now - since > self._timeout_s]
        self._give_up(slow, f"it ran for more than {self._timeout_s:g} s")

    def _give_up(self, rollout_ids: Sequence[str], reason: str) -> None:
        for rollout_id in rollout_ids:
            future = self._waiting.get(rollout_id)
            if future is not None and not future.done():
                future.set_result(Drop(cause=DropCause.ATTEMPT, detail=reason))


class RolloutLostError(TrainingError):
    """Every attempt at a rollout was lost, for causes other than a mistake of the model."""


class RolloutObserver(Protocol):
    """Callbacks for each attempt at a rollout; `rollout.dropped` is set after a lost attempt."""

    def enqueued(self, request: RolloutRequest) -> None: ...

    def finished(self, request: RolloutRequest, rollout: FinishedRollout) -> None: ...


class RetryingScheduler:
    """Runs a lost rollout again, up to `retries` times.

    A retry after the death of a process does not count towards `retries`: the supervisor limits how often a process is
    restarted. Failures of the model are scored, not run again. With a `barrier`, the rollouts of a training group wait
    for each other and are ranked.
    """

    def __init__(
        self, scheduler: RolloutScheduler, observer: RolloutObserver, retries: int, barrier: GroupBarrier | None = None
    ) -> None:
        self._scheduler = scheduler
        self._retries = retries
        self._observer = observer
        self._barrier = barrier

    async def run(self, request: RolloutRequest) -> FinishedRollout:
        """Return a rollout of `request` that is not lost. Raises RolloutLostError if all attempts were lost."""
        barrier = self._barrier if request.mode == "train" else None
        try:
            return await self._tries(request, barrier)
        finally:
            if barrier is not None:
                barrier.leave(request.group)

    async def _tries(self, request: RolloutRequest, barrier: GroupBarrier | None) -> FinishedRollout:
        reasons: list[str] = []
        while len(reasons) <= self._retries:
            self._observer.enqueued(request)
            rollout = await self._scheduler.run(request)
            if barrier is not None and rollout.dropped is None:
                rollout = await barrier.add(rollout)
            self._observer.finished(request, rollout)
            if rollout.dropped is None:
                return rollout
            if rollout.dropped.cause is not DropCause.PROCESS:
                reasons.append(str(rollout.dropped))
        raise RolloutLostError(
            f"every rollout of question {request.question.id} was lost ({len(reasons)} tries): {'; '.join(reasons)}"
        )


async def describe_stall(store: agl.LightningStore, waiting: Mapping[str, float]) -> str:
    """Return a message about unfinished rollouts: their number by status, and the three that have run longest.

    `waiting` is {rollout id: seconds since the rollout was first seen running}.
    """
    rollouts = list(await store.query_rollouts(rollout_id_in=list(waiting)))
    states = Counter(r.status for r in rollouts)
    counts = ", ".join(f"{count} {status}" for status, count in states.most_common())
    lines = [f"Nothing has ended for a while; waiting for {len(rollouts)} rollouts ({counts})."]
    if states.get("queuing"):
        lines.append("Queued rollouts wait for a runner: are the runners alive, and is runner.concurrency enough?")
    for rollout in sorted(rollouts, key=lambda r: -waiting[r.rollout_id])[:_SHOWN]:
        attempt = await store.get_latest_attempt(rollout.rollout_id)
        if attempt is not None:
            spans = len(await store.query_spans(rollout.rollout_id, attempt.attempt_id))
            lines.append(
                f"{rollout.rollout_id} on {attempt.worker_id} for {waiting[rollout.rollout_id]:.0f} s, "
                f"{spans} calls answered so far."
            )
    return " ".join(lines)
