"""Run single questions through the LightningStore, many at a time, each until it can be trained on."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal, Protocol

import agentlightning as agl

from sql_agent.agl.store import subscribe_ended
from sql_agent.errors import TrainingError
from sql_agent.rl.group_ranking import GroupBarrier
from sql_agent.rl.rollouts import FinishedRollout, complete_spans, enqueue, read_rollout
from sql_agent.schemas import Question

Mode = Literal["train", "val"]
_POLL_S = 0.02
_TOLD_POLL_S = 2.0  # where the store tells; for an end that came before its rollout was waited for


class RolloutLostError(TrainingError):
    """A question's rollout failed for reasons that are not the model's, as often as it may be tried."""


@dataclass(frozen=True)
class RolloutRequest:
    """One rollout to run: which question, for which step, and the group whose rewards are compared."""

    question: Question
    mode: Mode
    step: int
    group: str


class RolloutObserver(Protocol):
    """Hears of every try of a rollout, the lost ones included."""

    def enqueued(self, request: RolloutRequest) -> None: ...

    def finished(self, request: RolloutRequest, rollout: FinishedRollout) -> None: ...


class RolloutScheduler:
    """Takes requests and gives back finished rollouts.

    A rollout that the infrastructure or the judge lost is run again, up to `retries` times, so that its group stays
    whole; the model's own failures are rollouts like any other. `resources` are ids of store resources; a group keeps
    to one of them. With a `barrier` the rollouts of a training group wait there for each other, to be ranked.
    """

    def __init__(
        self,
        store: agl.LightningStore,
        adapter: Any,
        resources: Sequence[str],
        *,
        retries: int,
        timeout_s: float,
        span_deadline_s: float,
        observer: RolloutObserver,
        barrier: GroupBarrier | None = None,
    ) -> None:
        self._store = store
        self._adapter = adapter
        self._resources = resources
        self._retries = retries
        self._timeout_s = timeout_s
        self._span_deadline_s = span_deadline_s
        self._observer = observer
        self._barrier = barrier
        self._step = -1
        self._resource_of_group: dict[str, str] = {}
        self._turn = itertools.count()
        self._waiting: dict[str, asyncio.Future[agl.Rollout]] = {}

    async def run(self, request: RolloutRequest) -> FinishedRollout:
        """A kept rollout for `request`. Raises RolloutLostError when every try was lost."""
        barrier = self._barrier if request.mode == "train" else None
        reasons = []
        for _ in range(1 + self._retries):
            try:
                finished = await self._once(request)
            except BaseException:  # a cancelled session too
                if barrier is not None:
                    await barrier.abandon(request.group)
                raise
            if barrier is not None and finished.dropped is None:
                finished = await barrier.add(finished)
            self._observer.finished(request, finished)
            if finished.dropped is None:
                return finished
            reasons.append(finished.dropped)
        if barrier is not None:
            await barrier.abandon(request.group)
        raise RolloutLostError(f"question {request.question.id} was lost {len(reasons)} times: {'; '.join(reasons)}")

    @property
    def waiting(self) -> list[str]:
        """The ids of the rollouts that have not ended yet."""
        return list(self._waiting)

    async def watch(self) -> None:
        """Learn which rollouts ended, from the store or by polling it; runs until cancelled."""
        poll_s = _TOLD_POLL_S if subscribe_ended(self._store, self._ended) else _POLL_S
        while True:
            if self._waiting:
                for rollout in await self._store.wait_for_rollouts(rollout_ids=list(self._waiting), timeout=0.0):
                    self._ended(rollout)
            await asyncio.sleep(poll_s)

    def _ended(self, rollout: agl.Rollout) -> None:
        future = self._waiting.pop(rollout.rollout_id, None)
        if future is not None and not future.done():
            future.set_result(rollout)

    async def _once(self, request: RolloutRequest) -> FinishedRollout:
        (rollout_id,) = await enqueue(
            self._store,
            [request.question],
            copies=1,
            mode=request.mode,
            resources_id=self._resource(request),
            timeout_s=self._timeout_s,
        )
        self._observer.enqueued(request)
        future = self._waiting[rollout_id] = asyncio.get_running_loop().create_future()
        try:
            rollout = await future
        except asyncio.CancelledError:
            self._waiting.pop(rollout_id, None)
            await self._store.update_rollout(rollout_id, status="cancelled")
            raise
        try:
            spans, missing = await complete_spans(self._store, rollout_id, deadline_s=self._span_deadline_s)
        except Exception as error:  # in whichever way a store fails, this rollout is lost and not the run
            reason = f"infrastructure: its spans could not be read: {type(error).__name__}: {error}"
            return FinishedRollout(rollout_id, request.group, None, None, (), (), reason)
        return read_rollout(rollout, request.group, spans, missing, adapter=self._adapter)

    def _resource(self, request: RolloutRequest) -> str:
        """All rollouts of a group share a proxy and an endpoint: they begin alike, and its caches know them."""
        if request.step != self._step:
            self._step, self._resource_of_group = request.step, {}
        if request.group not in self._resource_of_group:
            self._resource_of_group[request.group] = self._resources[next(self._turn) % len(self._resources)]
        return self._resource_of_group[request.group]
