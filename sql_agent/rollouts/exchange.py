"""Define the requests that only a RunStore answers, each of which does for many rollouts what one of its calls does."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, Literal

import agentlightning as agl
from pydantic import BaseModel

EXCHANGE = "/v1/agl/exchange"  # of a runner: an ExchangeRequest, for a list of AttemptedRollout
ENDED = "/v1/agl/ended"  # of the algorithm: the EndedRollouts since its last request, as soon as there are some
CONSUMED = "/v1/agl/consumed"  # of the algorithm: a list of ids of rollouts that may be deleted

STARTED: Final = ("preparing", "running")  # statuses of a rollout that a runner has taken
REFUSED = "refused"  # in a rollout's metadata: why its store refused to take its end


class EndedAttempt(BaseModel):
    """Tells how an attempt ended, with the spans of its runner; those of its calls come from the LLM proxy."""

    rollout_id: str
    attempt_id: str
    status: Literal["succeeded", "failed"]
    spans: Sequence[agl.Span] = ()


class ExchangeRequest(BaseModel):
    """Reports the attempts that the runner `worker_id` has ended, and asks for up to `limit` queued rollouts.

    `number` counts the requests of `client` for rollouts that were answered, this one included. When the same number
    comes again, the last answer was lost on its way, and the store repeats what that held instead of taking others.
    """

    client: str
    number: int
    worker_id: str
    ended: Sequence[EndedAttempt]
    limit: int


class EndedRollout(BaseModel):
    """Holds an ended rollout and the spans that its store has."""

    rollout: agl.Rollout
    spans: Sequence[agl.Span]
