"""Run a rollout again when the infrastructure or the judge lost it, so that its group stays whole."""

from __future__ import annotations

from typing import Protocol

from sql_agent.errors import TrainingError
from sql_agent.rollouts.group_ranking import GroupBarrier
from sql_agent.rollouts.rollouts import FinishedRollout
from sql_agent.rollouts.scheduler import RolloutRequest, RolloutScheduler
from sql_agent.schemas import DropCause


class RolloutLostError(TrainingError):
    """Every try of a question's rollout was lost for reasons that are not the model's."""


class RolloutObserver(Protocol):
    """Is called at the start and at the end of every try of a rollout, the lost ones included."""

    def enqueued(self, request: RolloutRequest) -> None:
        """Record that a try begins."""
        ...

    def finished(self, request: RolloutRequest, rollout: FinishedRollout) -> None:
        """Record how a try ended; `rollout.dropped` is the reason when it was lost."""
        ...


class RetryingScheduler:
    """Runs a rollout that was lost again, up to `retries` times.

    A rollout that was lost with its process does not count, because whoever replaces the process limits how often it
    dies. The model's own failures are not losses: they are scored like any other rollout. With a `barrier` the rollouts
    of a training group wait for each other and are ranked.
    """

    def __init__(
        self,
        scheduler: RolloutScheduler,
        *,
        retries: int,
        observer: RolloutObserver,
        barrier: GroupBarrier | None = None,
    ) -> None:
        self._scheduler = scheduler
        self._retries = retries
        self._observer = observer
        self._barrier = barrier

    async def run(self, request: RolloutRequest) -> FinishedRollout:
        """Return a kept rollout for `request`. Raises RolloutLostError when every try was lost."""
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
