"""Run a rollout again when the infrastructure or the judge lost it, so that its group stays whole."""

from __future__ import annotations

from typing import Protocol

from sql_agent.errors import TrainingError
from sql_agent.rl.group_ranking import GroupBarrier
from sql_agent.rl.rollouts import FinishedRollout
from sql_agent.rl.scheduler import RolloutRequest, RolloutScheduler


class RolloutLostError(TrainingError):
    """A question's rollout failed for reasons that are not the model's, as often as it may be tried."""


class RolloutObserver(Protocol):
    """Is called for every try of a rollout, the lost ones included."""

    def enqueued(self, request: RolloutRequest) -> None: ...

    def finished(self, request: RolloutRequest, rollout: FinishedRollout) -> None: ...


class RetryingScheduler:
    """Gives back kept rollouts: one that was lost is run again, up to `retries` times.

    The model's own failures are rollouts like any other. With a `barrier` the rollouts of a training group wait there
    for each other, to be ranked.
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
        reasons = []
        for _ in range(1 + self._retries):
            self._observer.enqueued(request)
            try:
                rollout = await self._scheduler.run(request)
            except BaseException:  # a cancelled request too
                if barrier is not None:
                    await barrier.abandon(request.group)
                raise
            if barrier is not None and rollout.dropped is None:
                rollout = await barrier.add(rollout)
            self._observer.finished(request, rollout)
            if rollout.dropped is None:
                return rollout
            reasons.append(str(rollout.dropped))
        if barrier is not None:
            await barrier.abandon(request.group)
        raise RolloutLostError(f"question {request.question.id} was lost {len(reasons)} times: {'; '.join(reasons)}")
