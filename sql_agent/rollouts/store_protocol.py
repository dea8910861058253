"""The store's interface for algorithms, and the batched HTTP requests of a RunStore."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final, Literal

import agentlightning as agl
import aiohttp
from pydantic import BaseModel

REPORT = "/v1/agl/report"  # a runner sends a RunnerReport and gets a list of AttemptedRollout
ENDED = "/v1/agl/ended"  # long polling: the algorithm gets the EndedRollouts since its last request
CONSUMED = "/v1/agl/consumed"  # the algorithm sends the ids of rollouts that may be deleted

QUEUED: Final = ("queuing", "requeuing")  # statuses of a rollout that no runner has taken
STARTED: Final = ("preparing", "running")  # statuses of a rollout that a runner has taken
# Keys in the metadata of a failed rollout; the value is the reason.
LOST = "lost"  # the runner died, or never received the rollout
REFUSED = "refused"  # the store refused the report of the end

STORE_ERRORS = (aiohttp.ClientError, OSError, TimeoutError, RuntimeError)  # raised when a store is down

_LEAST_DELAY_S, _MOST_DELAY_S = 0.01, 0.1
_DELAY_SHARE = 3.0  # the delay as a multiple of the last request's time, which is long if the store is busy


class EndedAttempt(BaseModel):
    """How an attempt ended, with the runner's spans; the LLM proxy sends the spans of model calls itself."""

    rollout_id: str
    attempt_id: str
    status: Literal["succeeded", "failed"]
    spans: Sequence[agl.Span] = ()


class RunnerReport(BaseModel):
    """A request of the runner `worker_id`: reports ended attempts, and takes up to `limit` queued rollouts."""

    worker_id: str
    ended: Sequence[EndedAttempt]
    limit: int


class EndedRollout(BaseModel):
    """An ended rollout and its spans."""

    rollout: agl.Rollout
    spans: Sequence[agl.Span]


class AlgorithmStore(agl.LightningStore):  # type: ignore[misc]
    """agent-lightning's store interface, extended for algorithms."""

    async def watch_ended(self, callback: Callable[[agl.Rollout], bool]) -> None:
        """Call `callback` with each rollout that ends, until cancelled. Return at once if the store must be polled.

        `callback` returns whether a request waits for the rollout.
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
    """Fail the started rollouts for which `of(rollout, worker_id)` is true, as lost for `reason`.

    Return the number of failed rollouts.
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
    """Return the seconds to wait for a fuller batch, after a request that took `took_s` seconds."""
    return min(max(_LEAST_DELAY_S, _DELAY_SHARE * took_s), _MOST_DELAY_S)
