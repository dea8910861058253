"""Define what an algorithm asks of a store, and the requests by which one message does for many rollouts."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final, Literal

import agentlightning as agl
import aiohttp
from pydantic import BaseModel

REPORT = "/v1/agl/report"  # of a runner: a RunnerReport, answered by a list of AttemptedRollout
ENDED = "/v1/agl/ended"  # of the algorithm: answered by the EndedRollouts since its last request, once there are some
CONSUMED = "/v1/agl/consumed"  # of the algorithm: a list of ids of rollouts that may be deleted

QUEUED: Final = ("queuing", "requeuing")  # statuses of a rollout that no runner has taken
STARTED: Final = ("preparing", "running")  # statuses of a rollout that a runner has taken
# Keys of a rollout's metadata that say why it ended as failed.
LOST = "lost"  # its process died, or did not get it
REFUSED = "refused"  # the store refused its end

STORE_ERRORS = (aiohttp.ClientError, OSError, TimeoutError, RuntimeError)  # of a store that does not answer

_LEAST_DELAY_S, _MOST_DELAY_S = 0.01, 0.1
_DELAY_SHARE = 3.0  # of the last request's time, because a busy store answers late


class EndedAttempt(BaseModel):
    """How an attempt ended, with its spans."""

    rollout_id: str
    attempt_id: str
    status: Literal["succeeded", "failed"]
    spans: Sequence[agl.Span] = ()


class RunnerReport(BaseModel):
    """Report the attempts that the runner `worker_id` has ended, and ask for up to `limit` queued rollouts."""

    worker_id: str
    ended: Sequence[EndedAttempt]
    limit: int


class EndedRollout(BaseModel):
    """An ended rollout and the spans that its store has."""

    rollout: agl.Rollout
    spans: Sequence[agl.Span]


class AlgorithmStore(agl.LightningStore):  # type: ignore[misc]
    """What an algorithm asks of a store beyond agent-lightning's interface."""

    async def watch_ended(self, callback: Callable[[agl.Rollout], bool]) -> None:
        """Call `callback` with each rollout that ends, until cancelled; at once returns a store that reports no ends.

        `callback` returns whether anybody waits for the rollout.
        """
        raise NotImplementedError

    async def spans_of(self, rollout_id: str) -> Sequence[agl.Span]:
        """Return the spans of a rollout's latest attempt, in any order.

        Raises TrainingError when a run's own store evicted the spans to free memory.
        """
        raise NotImplementedError

    async def mark_consumed(self, rollout_id: str) -> None:
        """Let the store delete an ended rollout later."""
        raise NotImplementedError


async def fail_rollouts(store: agl.LightningStore, reason: str, *, of: Callable[[agl.Rollout, str], bool]) -> int:
    """Mark the started rollouts that `of` selects as lost because of `reason`; return how many there were.

    `of` gets a rollout and the id of the worker that runs it.
    """
    lost = 0
    for rollout in await store.query_rollouts(status_in=list(STARTED)):
        attempt = getattr(rollout, "attempt", None)
        if attempt is not None and of(rollout, attempt.worker_id or ""):
            metadata = (rollout.metadata or {}) | {LOST: reason}
            await store.update_rollout(rollout.rollout_id, status="failed", metadata=metadata)
            lost += 1
    return lost


def batch_delay_s(took_s: float) -> float:
    """Return for how many seconds to collect more for a request, after a request that took `took_s` seconds."""
    return min(max(_LEAST_DELAY_S, _DELAY_SHARE * took_s), _MOST_DELAY_S)
