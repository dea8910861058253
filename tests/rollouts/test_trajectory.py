"""Which turns of a rollout continue each other in one training sequence."""

from __future__ import annotations

from sql_agent.rollouts.trajectory import Turn, merge_turns, untrained


def test_a_turn_continues_the_conversation_that_it_belongs_to_whatever_was_said_between() -> None:
    write, check = Turn((1, 2), (3,)), Turn((9,), (8,))
    rewrite = Turn((1, 2, 3, 4, 5), (6, 7))
    first, second = merge_turns([write, check, rewrite])
    assert (first.prompt_ids, first.response_ids) == ((1, 2), (3, 4, 5, 6, 7))
    assert first.response_mask == (1, 0, 0, 1, 1)
    assert (second.prompt_ids, second.response_mask) == ((9,), (1,))


def test_an_untrained_sequence_has_no_token_to_learn() -> None:
    assert untrained(Turn((1,), (2, 3), (-0.1, -0.2))).sampled == 0
