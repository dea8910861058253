"""A finished rollout, and its model calls joined into token sequences with a mask of the sampled tokens."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Any

from sql_agent.schemas import Drop, RolloutRecord


@dataclass(frozen=True)
class TokenSequence:
    """A training sequence: the tokens of the first prompt, then those that the policy, tools and the template added.

    `response_mask[i]` is 1 if the policy sampled `response_ids[i]`, and 0 if a tool or the template added it.
    `logprobs[i]` is the natural log-probability of `response_ids[i]` under the sampling policy (0.0 where the mask is
    0; None: unknown). `versions` are the first and the last version of the sampling weights (None: unknown).
    """

    prompt_ids: tuple[int, ...]
    response_ids: tuple[int, ...]
    response_mask: tuple[int, ...]
    logprobs: tuple[float, ...] | None = None
    versions: tuple[int, int] | None = None

    def __post_init__(self) -> None:
        if len(self.response_ids) != len(self.response_mask):
            raise ValueError(f"{len(self.response_ids)} response ids but {len(self.response_mask)} mask values")
        if self.logprobs is not None and len(self.logprobs) != len(self.response_ids):
            raise ValueError(f"{len(self.response_ids)} response ids but {len(self.logprobs)} log-probabilities")

    def __len__(self) -> int:
        return len(self.prompt_ids) + len(self.response_ids)

    @property
    def sampled(self) -> int:
        return sum(self.response_mask)


@dataclass(frozen=True)
class Turn:
    """A model call: the token ids of prompt and response; `logprobs` and `versions` as in TokenSequence.

    `is_trained` is whether the agent's role in this call is trained. `forced` is the range (start, end) of response ids
    that the server inserted to end a long thought; these tokens are not trained.
    """

    prompt_ids: tuple[int, ...]
    response_ids: tuple[int, ...]
    logprobs: tuple[float, ...] | None = None
    versions: tuple[int, int] | None = None
    is_trained: bool = True
    forced: tuple[int, int] | None = None

    @property
    def mask(self) -> tuple[int, ...]:
        """A 1 for each sampled response id, and a 0 for each inserted response id."""
        start, end = self.forced or (0, 0)
        return tuple(int(not start <= index < end) for index in range(len(self.response_ids)))


@dataclass(frozen=True)
class FinishedRollout:
    """An ended rollout, which is kept for training or dropped for the reason `dropped`.

    Rewards are compared within `group`. `record` and `reward` (0.0–1.1) are None for a lost rollout. `turns` are all
    model calls; `sequences` join the turns that are trained.
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
        """The number of model calls with token ids."""
        return len(self.turns)

    @classmethod
    def lost(cls, rollout_id: str, group: str, drop: Drop) -> FinishedRollout:
        return cls(rollout_id, group, None, None, (), (), drop)


def merge_turns(turns: Iterable[Turn]) -> list[TokenSequence]:
    """Join the turns of one rollout, in order, into as few sequences as possible.

    A turn continues a sequence if its prompt starts with all tokens of the sequence; the further tokens of the prompt
    get mask 0. Otherwise the turn starts a new sequence, for example if the chat template rewrites earlier turns, or if
    its role has a conversation of its own. A further sequence makes training slower, but not wrong.
    """
    merged: list[TokenSequence] = []
    for turn in turns:
        for index in range(len(merged) - 1, -1, -1):
            if (joined := _continued(merged[index], turn)) is not None:
                merged[index] = joined
                break
        else:
            merged.append(one_turn(turn))
    return merged


def one_turn(turn: Turn) -> TokenSequence:
    return TokenSequence(turn.prompt_ids, turn.response_ids, turn.mask, turn.logprobs, turn.versions)


def untrained(turn: Turn) -> TokenSequence:
    """Return the sequence of `turn` alone, with mask 0 for all tokens."""
    return replace(one_turn(turn), response_mask=(0,) * len(turn.response_ids))


def _continued(last: TokenSequence, turn: Turn) -> TokenSequence | None:
    seen = last.prompt_ids + last.response_ids
    if turn.prompt_ids[: len(seen)] != seen:
        return None
    added = turn.prompt_ids[len(seen) :]
    logprobs = None
    if last.logprobs is not None and turn.logprobs is not None:
        logprobs = last.logprobs + (0.0,) * len(added) + turn.logprobs
    return TokenSequence(
        last.prompt_ids,
        last.response_ids + added + turn.response_ids,
        last.response_mask + (0,) * len(added) + turn.mask,
        logprobs,
        joined_versions(last.versions, turn.versions),
    )


def joined_versions(first: tuple[int, int] | None, second: tuple[int, int] | None) -> tuple[int, int] | None:
    """Return the lowest and the highest version of two ranges (first, last); None if a range is unknown."""
    if first is None or second is None:
        return None
    return min(first[0], second[0]), max(first[1], second[1])


def turns_of(triplets: Iterable[Any], train_roles: str) -> list[Turn]:
    """Return the turns of a rollout from its `triplets`, as returned by `TokenIdAdapter`.

    A turn is trained if it has no role, or if the regular expression `train_roles` matches its whole role.
    """
    return [
        Turn(
            tuple(t.prompt["token_ids"]),
            tuple(t.response["token_ids"]),
            tuple(t.response["logprobs"]) if "logprobs" in t.response else None,
            (t.response["versions"][0], t.response["versions"][1]) if "versions" in t.response else None,
            is_trained=(role := t.metadata.get("role")) is None or bool(re.fullmatch(train_roles, role)),
            forced=(t.response["forced"][0], t.response["forced"][1]) if "forced" in t.response else None,
        )
        for t in triplets
    ]
