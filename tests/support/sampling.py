"""Sample a whole batch of turns; the policy's server adds and removes requests while others are sampled."""

from __future__ import annotations

from collections.abc import Sequence

from sql_agent.training.local.sampler import Request, Sampler
from sql_agent.training.serving.server import Generation


def sample(sampler: Sampler, batch: Sequence[Request]) -> list[Generation]:
    """Return one turn for each request, in the order of `batch`."""
    sampler.admit(batch)
    done: dict[int, Generation] = {}
    while sampler.active:
        done |= {id(request): sampled for request, sampled in sampler.step()}
    return [done[id(request)] for request in batch]
