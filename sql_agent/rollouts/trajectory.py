"""Turn the triplets of one rollout into token sequences with a mask of what the policy sampled."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any


@dataclass(frozen=True)
class TokenSequence:
    """One training sequence: a prompt, the tokens after it, and which of those the policy sampled.

    `response_mask[i]` is 1 where `response_ids[i]` was sampled and 0 where it came from a tool or the template.
    `logprobs[i]` is the natural log-probability of `response_ids[i]` under the sampling policy, 0.0 where the mask is
    0. `versions` are the first and the last version of the weights that sampled. Both are None when unknown.
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
        """Return how many tokens the policy sampled."""
        return sum(self.response_mask)


@dataclass(frozen=True)
class Turn:
    """One call of the model: the prompt's ids, the sampled ids, and their log-probabilities and versions.

    `is_trained` says whether the agent played a role that is trained. `forced` are the start and the end of the ids in
    the middle that the server inserted, to close a thought that was too long; these are not trained.
    """

    prompt_ids: tuple[int, ...]
    response_ids: tuple[int, ...]
    logprobs: tuple[float, ...] | None = None
    versions: tuple[int, int] | None = None
    is_trained: bool = True
    forced: tuple[int, int] | None = None

    @property
    def mask(self) -> tuple[int, ...]:
        """Return 1 for each response id that the policy sampled, and 0 for an inserted one."""
        start, end = self.forced or (0, 0)
        return tuple(int(not start <= place < end) for place in range(len(self.response_ids)))


def merge_turns(turns: Iterable[Turn]) -> list[TokenSequence]:
    """Join the turns of one rollout, in order, into as few sequences as possible.

    A turn continues a sequence when its prompt starts with everything seen there so far; what the prompt adds is masked
    out. Otherwise (a role with another conversation, a template that rewrites history) it starts another sequence:
    training stays correct, only slower, and the caller counts the splits.
    """
    merged: list[TokenSequence] = []
    for turn in turns:
        for place in range(len(merged) - 1, -1, -1):
            if (joined := _continued(merged[place], turn)) is not None:
                merged[place] = joined
                break
        else:
            merged.append(one_turn(turn))
    return merged


def one_turn(turn: Turn) -> TokenSequence:
    """Return `turn` as one sequence."""
    return TokenSequence(turn.prompt_ids, turn.response_ids, turn.mask, turn.logprobs, turn.versions)


def untrained(turn: Turn) -> TokenSequence:
    """Return `turn` as a sequence in which nothing is trained."""
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
        _span(last.versions, turn.versions),
    )


def _span(first: tuple[int, int] | None, second: tuple[int, int] | None) -> tuple[int, int] | None:
    if first is None or second is None:
        return None
    return min(first[0], second[0]), max(first[1], second[1])


def turns_of(triplets: Iterable[Any], train_roles: str) -> list[Turn]:
    """Return the turns of a rollout from agent-lightning's triplets (`prompt`/`response` dicts with `token_ids`).

    A turn is trained when it has no role, or when the regular expression `train_roles` matches the whole role.
    """
    return [
        Turn(
            tuple(t.prompt["token_ids"]),
            tuple(t.response["token_ids"]),
            tuple(t.response["logprobs"]) if "logprobs" in t.response else None,
            (t.response["versions"][0], t.response["versions"][1]) if "versions" in t.response else None,
            is_trained=_is_trained(t.metadata, train_roles),
            forced=(t.response["forced"][0], t.response["forced"][1]) if "forced" in t.response else None,
        )
        for t in triplets
    ]


def _is_trained(metadata: Mapping[str, Any], train_roles: str) -> bool:
    role = metadata.get("role")
    return role is None or re.fullmatch(train_roles, role) is not None
