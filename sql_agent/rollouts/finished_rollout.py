"""Read the token sequences, record and reward of an ended rollout from its spans, or the reason to drop it."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import agentlightning as agl

from sql_agent.rollouts.spans import read_record
from sql_agent.rollouts.trajectory import TokenSequence, Turn, merge_turns, turns_of
from sql_agent.schemas import Drop, DropCause, Outcome, RolloutRecord

_SPAN_POLLS_S = (0.01, 0.16)  # first and longest pause between polls, which doubles each time
_MORE_CONTEXT = "leave it out, or raise local.max_context (with verl: verl.config.data.max_prompt_length)"


@dataclass(frozen=True)
class FinishedRollout:
    """An ended rollout, kept for training or dropped.

    Rewards are compared within `group`. `record` and `reward` (0.0–1.1) are None for a lost rollout. `turns` are all
    model calls. `sequences` join the trained turns. `dropped` is the reason for dropping a rollout, None if kept.
    """

    rollout_id: str
    group: str
    record: RolloutRecord | None
    reward: float | None
    turns: tuple[Turn, ...]
    sequences: tuple[TokenSequence, ...]
    dropped: Drop | None

    @property
    def triplets(self) -> int:
        """Return the number of model calls that have token ids."""
        return len(self.turns)

    @classmethod
    def lost(cls, rollout_id: str, group: str, drop: Drop) -> FinishedRollout:
        """Return a dropped rollout that has no turns, record or reward."""
        return cls(rollout_id, group, None, None, (), (), drop)


async def complete_spans(store: agl.LightningStore, rollout_id: str, *, deadline_s: float) -> tuple[list[Any], int]:
    """Return a rollout's spans, sorted by sequence id, and the number of missing spans.

    A rollout can be marked as succeeded before its last span is stored. So this polls the store, for at most
    `deadline_s` seconds, until no sequence id from 1 to the highest is missing.
    """
    deadline = time.monotonic() + deadline_s
    pause_s, longest_s = _SPAN_POLLS_S
    while True:
        spans = sorted(await store.query_spans(rollout_id, "latest"), key=lambda s: s.sequence_id)
        missing = missing_spans([s.sequence_id for s in spans])
        if not missing or time.monotonic() > deadline:
            return spans, missing
        await asyncio.sleep(pause_s)
        pause_s = min(2 * pause_s, longest_s)


def missing_spans(sequence_ids: Sequence[int]) -> int:
    """Return how many ids from 1 to the highest are missing in `sequence_ids`; 1 for an empty sequence."""
    return max(sequence_ids) - len(set(sequence_ids)) if sequence_ids else 1


def read_rollout(
    rollout: agl.Rollout, group: str, spans: Sequence[Any], missing: int, *, adapter: Any, train_roles: str
) -> FinishedRollout:
    """Build the FinishedRollout of an ended rollout, and decide whether the rollout can be trained on.

    `spans` are sorted by sequence id, and `missing` is the number of spans that never arrived. `adapter` turns spans
    into triplets. The regular expression `train_roles` matches the names of the trained roles.
    """
    turns = turns_of(adapter.adapt(spans), train_roles)
    record = read_record(spans)
    reward = record.reward.total if record is not None and record.reward is not None else None
    return FinishedRollout(
        rollout_id=rollout.rollout_id,
        group=group,
        record=record,
        reward=reward,
        turns=tuple(turns),
        sequences=tuple(merge_turns(turn for turn in turns if turn.is_trained)),
        dropped=_reason_to_drop(rollout.status, record, reward, len(turns), missing),
    )


def _reason_to_drop(
    status: str, record: RolloutRecord | None, reward: float | None, triplets: int, missing: int
) -> Drop | None:
    if record is not None and record.dropped:
        return record.dropped
    if status != "succeeded":
        return Drop(cause=DropCause.ATTEMPT, detail=f"it ended as {status}")
    if missing:
        return Drop(cause=DropCause.SPANS, detail=f"{missing} are missing")
    if record is None or reward is None:
        return Drop(cause=DropCause.RECORD)
    if not triplets or triplets != record.turns:
        return _reason_for_triplets(record, triplets)
    return None


def _reason_for_triplets(record: RolloutRecord, triplets: int) -> Drop:
    """Return why a rollout has no triplet, or not one triplet per turn."""
    if record.outcome is Outcome.CONTEXT_OVERFLOW and not record.turns:
        return Drop(cause=DropCause.PROMPT, detail=f"question {record.question.id}; {_MORE_CONTEXT}")
    return Drop(cause=DropCause.TRIPLETS, detail=f"{record.turns} turns, {triplets} triplets")
