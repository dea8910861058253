"""Turn the triplets of one rollout into token sequences with a mask of what the policy sampled."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class TokenSequence:
    """One training sequence: a prompt, what follows it, and which of that the policy itself sampled.

    `response_mask[i]` is 1 where `response_ids[i]` was sampled and 0 where it came from a tool or the template.
    """

    prompt_ids: tuple[int, ...]
    response_ids: tuple[int, ...]
    response_mask: tuple[int, ...]

    def __post_init__(self) -> None:
        if len(self.response_ids) != len(self.response_mask):
            raise ValueError(f"{len(self.response_ids)} response ids but {len(self.response_mask)} mask values")

    def __len__(self) -> int:
        return len(self.prompt_ids) + len(self.response_ids)

    @property
    def sampled(self) -> int:
        """How many tokens the policy sampled."""
        return sum(self.response_mask)


def merge_turns(turns: Iterable[tuple[Sequence[int], Sequence[int]]]) -> list[TokenSequence]:
    """Join turns, each (prompt ids, response ids) in order, into as few sequences as possible.

    A turn continues the sequence before it when its prompt starts with everything seen so far; what the prompt adds
    is masked out. Otherwise (a template that rewrites history) it starts a sequence of its own: training stays
    correct, only slower, and the caller counts the splits.
    """
    merged: list[TokenSequence] = []
    for prompt, response in turns:
        if merged:
            last = merged[-1]
            seen = last.prompt_ids + last.response_ids
            if tuple(prompt[: len(seen)]) == seen:
                added = tuple(prompt[len(seen) :])
                merged[-1] = TokenSequence(
                    last.prompt_ids,
                    last.response_ids + added + tuple(response),
                    last.response_mask + (0,) * len(added) + (1,) * len(response),
                )
                continue
        merged.append(TokenSequence(tuple(prompt), tuple(response), (1,) * len(response)))
    return merged


def from_triplets(triplets: Sequence[Any]) -> list[TokenSequence]:
    """The sequences of a rollout from agent-lightning triplets (`prompt`/`response` dicts with `token_ids`)."""
    return merge_turns((t.prompt["token_ids"], t.response["token_ids"]) for t in triplets)
