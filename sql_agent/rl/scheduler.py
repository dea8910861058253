"""Run single rollouts through the LightningStore, many at a time: enqueue, wait for the end, read what came back."""

from __future__ import annotations

import asyncio
import itertools
import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

import agentlightning as agl

from sql_agent.agl.store import subscribe_ended
from sql_agent.rl.rollouts import FinishedRollout, complete_spans, read_rollout
from sql_agent.schemas import DropCause, Question

Mode = Literal["train", "val"]
_POLL_S = 0.02
_SUBSCRIBED_POLL_S = 2.0  # for an end that came before its rollout was waited for


@dataclass(frozen=True)
class RolloutRequest:
    """One rollout to run: which question, for which step, and the group whose rewards are compared."""

    question: Question
    mode: Mode
    step: int
    group: str


class RolloutScheduler:
    """Runs rollouts through `store`; `watch` must run beside it.

    `resources` are ids of store resources, each another route to the policy; a group keeps to one of them. When no
    rollout has ended for twice `timeout_s` seconds, those that are waited for are given up.
    """

    def __init__(
        self,
        store: agl.LightningStore,
        adapter: Any,
        resources: Sequence[str],
        *,
        timeout_s: float,
        span_deadline_s: float,
    ) -> None:
        self._store = store
        self._adapter = adapter
        self._resources = resources
        self._timeout_s = timeout_s
        self._span_deadline_s = span_deadline_s
        self._step = -1
        self._resource_of_group: dict[str, str] = {}
        self._turn = itertools.count()
        self._waiting: dict[str, asyncio.Future[agl.Rollout | None]] = {}
        self._last_end = time.monotonic()

    @property
    def waiting(self) -> list[str]:
        """The ids of the rollouts that have not ended yet."""
        return list(self._waiting)

    async def run(self, request: RolloutRequest) -> FinishedRollout:
        """Run one attempt of one rollout; what was lost on the way comes back with `dropped` set."""
        rollout_id = await self._enqueue(request)
        rollout = await self._ended_rollout(rollout_id)
        if rollout is None:
            detail = f"nothing ended for {2 * self._timeout_s:g} s"
            return FinishedRollout.lost(rollout_id, request.group, DropCause.ATTEMPT, detail)
        try:
            spans, missing = await complete_spans(self._store, rollout_id, deadline_s=self._span_deadline_s)
        except Exception as error:  # in whichever way a store fails, this rollout is lost and not the run
            detail = f"{type(error).__name__}: {error}"
            return FinishedRollout.lost(rollout_id, request.group, DropCause.STORE, detail)
        return read_rollout(rollout, request.group, spans, missing, adapter=self._adapter)

    async def watch(self) -> None:
        """Learn which rollouts ended, from the store or by polling it; runs until cancelled."""
        poll_s = _SUBSCRIBED_POLL_S if subscribe_ended(self._store, self._end) else _POLL_S
        while True:
            if self._waiting:
                # The store's client refuses a timeout above 0.1 s, so waiting is ours to do.
                for rollout in await self._store.wait_for_rollouts(rollout_ids=list(self._waiting), timeout=0.0):
                    self._end(rollout)
                if time.monotonic() - self._last_end > 2 * self._timeout_s:
                    self._give_up()
            await asyncio.sleep(poll_s)

    async def _enqueue(self, request: RolloutRequest) -> str:
        """Queue one attempt: a second one of the same rollout was seen to hang when a late span revived the first."""
        rollout = await self._store.enqueue_rollout(
            input=request.question.model_dump(mode="json"),
            mode=request.mode,
            resources_id=self._resource(request),
            config=agl.RolloutConfig(timeout_seconds=self._timeout_s, max_attempts=1),
            metadata={"group": request.group},
        )
        rollout_id: str = rollout.rollout_id
        return rollout_id

    async def _ended_rollout(self, rollout_id: str) -> agl.Rollout | None:
        """Wait for a rollout's end; None when it was given up. Cancels it in the store when it is not waited for."""
        if not self._waiting:
            self._last_end = time.monotonic()
        future = self._waiting[rollout_id] = asyncio.get_running_loop().create_future()
        rollout = None
        try:
            rollout = await future
        finally:
            if rollout is None:
                self._waiting.pop(rollout_id, None)
                await self._store.update_rollout(rollout_id, status="cancelled")
        return rollout

    def _end(self, rollout: agl.Rollout) -> None:
        future = self._waiting.pop(rollout.rollout_id, None)
        if future is not None and not future.done():
            self._last_end = time.monotonic()
            future.set_result(rollout)

    def _give_up(self) -> None:
        for future in self._waiting.values():
            if not future.done():
                future.set_result(None)

    def _resource(self, request: RolloutRequest) -> str:
        """All rollouts of a group share a proxy and an endpoint: they begin alike, and its caches know them."""
        if request.step != self._step:
            self._step, self._resource_of_group = request.step, {}
        if request.group not in self._resource_of_group:
            self._resource_of_group[request.group] = self._resources[next(self._turn) % len(self._resources)]
        return self._resource_of_group[request.group]
