"""Send questions through the LightningStore and bring back finished rollouts with their triplets."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import agentlightning as agl

from sql_agent.agl.adapter import final_reward
from sql_agent.agl.store import mark_consumed, read_spans
from sql_agent.rl.trajectory import TokenSequence, Turn, merge_turns, turns_of
from sql_agent.schemas import Question, RolloutRecord

_POLL_S = 0.1
_SPAN_POLL_S = 0.01
_OBJECT_SPAN = "agentlightning.object"


@dataclass(frozen=True)
class FinishedRollout:
    """One rollout that came back. `dropped` says why it cannot be trained on; None means it was kept."""

    rollout_id: str
    group: str
    record: RolloutRecord | None
    reward: float | None
    turns: tuple[Turn, ...]
    sequences: tuple[TokenSequence, ...]
    dropped: str | None

    @property
    def triplets(self) -> int:
        return len(self.turns)


async def enqueue(
    store: agl.LightningStore,
    questions: Iterable[Question],
    *,
    copies: int,
    mode: str,
    resources_id: str,
    timeout_s: float,
) -> dict[str, str]:
    """Put `copies` rollouts of each question in the queue; returns rollout id → question id (its group).

    One attempt each: a second attempt of the same rollout was seen to hang when a late span revived the first.
    """
    queue = [question for question in questions for _ in range(copies)]
    rollouts = await store.enqueue_many_rollouts(
        [
            agl.EnqueueRolloutRequest(
                input=question.model_dump(mode="json"),
                mode=mode,
                resources_id=resources_id,
                config=agl.RolloutConfig(timeout_seconds=timeout_s, max_attempts=1),
                metadata={"group": question.id},
            )
            for question in queue
        ]
    )
    return {rollout.rollout_id: question.id for rollout, question in zip(rollouts, queue, strict=True)}


async def wait_finished(
    store: agl.LightningStore,
    rollout_ids: Sequence[str],
    *,
    deadline_s: float,
    stop: asyncio.Event,
    progress: Any = None,
) -> list[agl.Rollout]:
    """Poll until all rollouts ended, the deadline passed, or `stop` was set; returns those that ended.

    `progress`, if given, is called with the number of ended rollouts.
    """
    deadline = time.monotonic() + deadline_s
    while True:
        # The store's client refuses a timeout above 0.1 s, so waiting is ours to do.
        done: list[agl.Rollout] = await store.wait_for_rollouts(rollout_ids=list(rollout_ids), timeout=0.0)
        if progress is not None:
            progress(len(done))
        if len(done) == len(rollout_ids) or time.monotonic() > deadline or stop.is_set():
            return done
        await asyncio.sleep(_POLL_S)


async def complete_spans(store: agl.LightningStore, rollout_id: str, *, deadline_s: float) -> tuple[list[Any], int]:
    """The spans of a rollout's latest attempt and how many are still missing when the deadline has passed.

    A rollout can be marked as succeeded before its last span is stored; sequence ids 1..max tell. The store is told
    that the rollout was read, so that it may forget it.
    """
    deadline = time.monotonic() + deadline_s
    while True:
        spans = sorted(await read_spans(store, rollout_id), key=lambda s: s.sequence_id)
        missing = missing_spans([s.sequence_id for s in spans])
        if not missing or time.monotonic() > deadline:
            await mark_consumed(store, rollout_id)
            return spans, missing
        await asyncio.sleep(_SPAN_POLL_S)


def missing_spans(sequence_ids: Sequence[int]) -> int:
    """How many of 1..max are absent from `sequence_ids` (no spans at all count as one missing)."""
    return max(sequence_ids) - len(set(sequence_ids)) if sequence_ids else 1


async def collect(
    store: agl.LightningStore,
    adapter: Any,
    rollouts: Iterable[agl.Rollout],
    groups: Mapping[str, str],
    *,
    span_deadline_s: float,
) -> list[FinishedRollout]:
    """Read each ended rollout's spans and turn them into sequences and its record."""
    return [
        read_rollout(
            rollout,
            groups[rollout.rollout_id],
            *await complete_spans(store, rollout.rollout_id, deadline_s=span_deadline_s),
            adapter=adapter,
        )
        for rollout in rollouts
    ]


def read_rollout(
    rollout: agl.Rollout, group: str, spans: Sequence[Any], missing: int, *, adapter: Any
) -> FinishedRollout:
    """One ended rollout from its spans; decides whether it can be trained on."""
    turns = turns_of(adapter.adapt(spans))
    record = _record(spans)
    # The adapter gives the reward to the last triplet only; the final reward belongs to the whole rollout.
    reward = final_reward(spans)
    return FinishedRollout(
        rollout_id=rollout.rollout_id,
        group=group,
        record=record,
        reward=reward,
        turns=tuple(turns),
        sequences=tuple(merge_turns(turns)),
        dropped=_reason_to_drop(rollout.status, record, reward, len(turns), missing),
    )


def _reason_to_drop(  # noqa: PLR0911  one reason a line
    status: str, record: RolloutRecord | None, reward: float | None, triplets: int, missing: int
) -> str | None:
    if record is not None and record.dropped:
        return record.dropped
    if status != "succeeded":
        return f"infrastructure: the attempt ended as {status}"
    if missing:
        return f"infrastructure: {missing} spans never reached the store"
    if not triplets:
        return "infrastructure: no triplets"
    if record is None or reward is None:
        return "infrastructure: the rollout has no record or no reward"
    if triplets != record.turns:
        return f"infrastructure: {record.turns} turns but {triplets} triplets"
    return None


def _record(spans: Sequence[Any]) -> RolloutRecord | None:
    for span in reversed(spans):
        if span.name == _OBJECT_SPAN:
            return RolloutRecord.model_validate(agl.get_object_value(span))
    return None
