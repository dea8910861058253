"""Which calls of a rollout become training sequences, and which of them continue each other."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

from sql_agent.rollouts.trajectory import Turn, merge_turns, turns_of, untrained


def triplet(prompt: list[int], response: list[int], role: str | None = None) -> Any:
    metadata = {"role": role} if role else {}
    return SimpleNamespace(prompt={"token_ids": prompt}, response={"token_ids": response}, metadata=metadata)


def test_only_the_roles_that_the_expression_matches_as_a_whole_are_trained() -> None:
    calls = [triplet([1], [2], "write"), triplet([3], [4], "rewrite"), triplet([5], [6], "check"), triplet([7], [8])]
    for roles, expected in (("write|rewrite", [1, 3, 7]), ("write", [1, 7]), (".*", [1, 3, 5, 7]), ("none", [7])):
        trained = [turn.prompt_ids[0] for turn in turns_of(calls, roles) if turn.is_trained]
        assert trained == expected, roles


def test_a_turn_continues_the_conversation_that_it_belongs_to_whatever_was_said_between() -> None:
    write, check = Turn((1, 2), (3,)), Turn((9,), (8,))
    rewrite = Turn((1, 2, 3, 4, 5), (6, 7))
    first, second = merge_turns([write, check, rewrite])
    assert (first.prompt_ids, first.response_ids) == ((1, 2), (3, 4, 5, 6, 7))
    assert first.response_mask == (1, 0, 0, 1, 1)
    assert (second.prompt_ids, second.response_mask) == ((9,), (1,))


def test_an_untrained_sequence_has_no_token_to_learn() -> None:
    assert untrained(Turn((1,), (2, 3), (-0.1, -0.2))).sampled == 0
