"""Why a rollout cannot be trained on is said in words that lead to what to change."""

from __future__ import annotations

from types import SimpleNamespace

from sql_agent.rollouts.spans import SpanOwner, read_rollout, record_span
from sql_agent.schemas import Outcome
from tests.support.records import record


def drop_of(outcome: Outcome, turns: int) -> str:
    """Why a rollout is dropped that ended with `outcome` after `turns` of which no triplet came back."""
    given = record(7, judge=0.0, outcome=outcome, turns=turns)
    spans = [record_span(given, SpanOwner("r", "a", 1))]
    ended = SimpleNamespace(rollout_id="r", status="succeeded")
    return str(read_rollout(ended, "g", spans, 0, []).dropped)


def test_a_question_that_does_not_fit_into_the_context_is_named_with_the_setting() -> None:
    said = drop_of(Outcome.CONTEXT_OVERFLOW, 0)
    assert "does not fit into the model's context" in said and "q7" in said and "local.max_context" in said


def test_calls_that_did_not_come_back_are_not_taken_for_a_question_that_is_too_long() -> None:
    assert drop_of(Outcome.CONTEXT_OVERFLOW, 2) == "the triplets do not match the turns: 2 turns, 0 triplets"
    assert drop_of(Outcome.ANSWERED, 1) == "the triplets do not match the turns: 1 turns, 0 triplets"
