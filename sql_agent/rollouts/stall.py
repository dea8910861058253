"""Describe which rollouts are waited for when none has ended for a while."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping

import agentlightning as agl

_SHOWN = 3


async def describe_stalled(store: agl.LightningStore, waiting: Mapping[str, float]) -> str:
    """Return one line about the rollouts `waiting`, which have not ended: counts by state, and those that run longest.

    The values of `waiting` are the seconds for which each rollout is known to run.
    """
    rollouts = list(await store.query_rollouts(rollout_id_in=list(waiting)))
    states = Counter(r.status for r in rollouts)
    counts = ", ".join(f"{count} {status}" for status, count in states.most_common())
    lines = [f"Nothing has ended for a while; waiting for {len(rollouts)} rollouts ({counts})."]
    if states.get("queuing"):
        lines.append("Queued ones wait for a runner: are the runner processes alive, and is runner.concurrency enough?")
    for rollout in sorted(rollouts, key=lambda r: -waiting[r.rollout_id])[:_SHOWN]:
        attempt = await store.get_latest_attempt(rollout.rollout_id)
        if attempt is not None:
            spans = len(await store.query_spans(rollout.rollout_id, attempt.attempt_id))
            lines.append(
                f"{rollout.rollout_id} on {attempt.worker_id} for {waiting[rollout.rollout_id]:.0f} s, "
                f"{spans} calls answered so far."
            )
    return " ".join(lines)
