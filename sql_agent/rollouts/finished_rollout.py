"""Read an ended rollout from its spans: token sequences, record, reward, or the reason to drop it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import agentlightning as agl

from sql_agent.rollouts.spans import read_record, read_turns
from sql_agent.rollouts.trajectory import TokenSequence, Turn, merge_turns
from sql_agent.schemas import Drop, DropCause, Outcome, RolloutRecord

_MORE_CONTEXT = "leave it out, or raise local.max_context (with verl: verl.config.data.max_prompt_length)"


@dataclass(frozen=True)
class FinishedRollout:
    """One ended rollout; `dropped` is the reason why it cannot be trained on, or None when it was kept.

    Rewards are compared within `group`. `record` and `reward` (0.0–1.1) are None for a rollout that was lost. `turns`
    are all calls of the model; `sequences` are made of the trained ones.
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
        """Return the number of calls whose token ids came back."""
        return len(self.turns)

    @classmethod
    def lost(cls, rollout_id: str, group: str, drop: Drop) -> FinishedRollout:
        """Return a dropped rollout without turns, record and reward."""
        return cls(rollout_id, group, None, None, (), (), drop)


def read_rollout(rollout: agl.Rollout, group: str, spans: Sequence[agl.Span], train_roles: str) -> FinishedRollout:
    """Read an ended rollout from its spans in order; the regular expression `train_roles` names the trained roles."""
    turns = read_turns(spans, train_roles)
    record = read_record(spans)
    return FinishedRollout(
        rollout_id=rollout.rollout_id,
        group=group,
        record=record,
        reward=record.reward.total if record is not None and record.reward is not None else None,
        turns=tuple(turns),
        sequences=tuple(merge_turns(turn for turn in turns if turn.is_trained)),
        dropped=_reason_to_drop(rollout.status, record, len(turns)),
    )


def _reason_to_drop(status: str, record: RolloutRecord | None, triplets: int) -> Drop | None:
    if record is not None and record.dropped:
        return record.dropped
    if status != "succeeded":
        return Drop(cause=DropCause.ATTEMPT, detail=f"it ended as {status}")
    if record is None or record.reward is None:
        return Drop(cause=DropCause.RECORD)
    if record.outcome is Outcome.CONTEXT_OVERFLOW and not record.turns:
        return Drop(cause=DropCause.PROMPT, detail=f"question {record.question.id}; {_MORE_CONTEXT}")
    if not triplets or triplets != record.turns:
        return Drop(cause=DropCause.TRIPLETS, detail=f"{record.turns} turns, {triplets} triplets")
    return None
