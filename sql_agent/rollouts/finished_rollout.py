"""Read an ended rollout from its spans: token sequences, record, reward, or the reason to drop it."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

import agentlightning as agl
import orjson
from agentlightning.semconv import AGL_OBJECT

from sql_agent.rollouts.call_recorder import CALL_SPAN, LOGPROBS, PROMPT_IDS, RECORD, RESPONSE_IDS, ROLE, VERSIONS
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


def read_record(spans: Sequence[agl.Span]) -> RolloutRecord | None:
    """Return the record among the spans of one rollout; None without one."""
    found = next((span for span in spans if span.name == AGL_OBJECT), None)
    return None if found is None else RolloutRecord.model_validate_json(found.attributes[RECORD])


def read_turns(spans: Sequence[agl.Span], train_roles: str) -> list[Turn]:
    """Return the turns among the spans of one rollout, in their order: one for each call with token ids.

    A turn is trained when it has no role, or when the regular expression `train_roles` matches the whole role.
    """
    turns = []
    for attributes in (span.attributes for span in spans if span.name == CALL_SPAN):
        if PROMPT_IDS not in attributes or RESPONSE_IDS not in attributes:
            continue  # a server that returns no token ids
        numbers = {name: orjson.loads(attributes[name]) for name in (LOGPROBS, VERSIONS) if name in attributes}
        role = attributes.get(ROLE)
        turns.append(
            Turn(
                tuple(orjson.loads(attributes[PROMPT_IDS])),
                tuple(orjson.loads(attributes[RESPONSE_IDS])[0]),
                tuple(numbers[LOGPROBS]) if LOGPROBS in numbers else None,
                (numbers[VERSIONS][0], numbers[VERSIONS][1]) if VERSIONS in numbers else None,
                is_trained=role is None or re.fullmatch(train_roles, role) is not None,
            )
        )
    return turns
