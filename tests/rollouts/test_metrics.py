"""What a step reports of how the agent searched."""

from __future__ import annotations

from sql_agent.rollouts.metrics import rewards, sampled_entropy
from sql_agent.rollouts.trajectory import FinishedRollout, Turn
from sql_agent.schemas import Outcome, QueryAnswer, QueryCall, QueryFailure, Question, RewardParts, RolloutRecord

ROWS = QueryAnswer(status="ok", columns=("form",), records=(("tablet",),), count=1, from_tables=True)
NOTHING = QueryAnswer(status="ok", columns=("form",), from_tables=True, hint="nearest med_name 'A'")
FAILED = QueryAnswer(status="error", error=QueryFailure(kind="unknown_column", message="no such column: x"))
CONSTANT = QueryAnswer(status="ok", columns=("1",), records=((1,),), count=1)


def finished(kind: str, *answers: QueryAnswer) -> FinishedRollout:
    """A kept rollout whose queries got `answers`."""
    record = RolloutRecord(
        question=Question(id="1", question="?", answer="tablet", task_type=kind),
        answer="tablet",
        outcome=Outcome.ANSWERED,
        calls=tuple(QueryCall(sql="SELECT 1", answer=answer, seconds=0.0) for answer in answers),
        reward=RewardParts(rule=0.1, judge=1.0, judge_name="facts"),
    )
    return FinishedRollout("r", "g", record, 1.1, (), (), None)


def test_empty_results_and_who_recovered_from_them_are_told_in_all_and_by_kind_of_question() -> None:
    values = rewards(
        [
            finished("drug_field", NOTHING, ROWS),
            finished("drug_field", ROWS, NOTHING),
            finished("two_hops", NOTHING, FAILED, CONSTANT, NOTHING),
            finished("two_hops"),
        ]
    )
    assert values["agent/tool_calls"] == 2
    assert values["agent/empty_results"] == 4 / 7, "of the queries that ran; one failed"
    assert values["agent/recovered"] == 1 / 3, "rows before the empty result, or of no table, are no recovery"
    assert (values["tool_calls/drug_field"], values["tool_calls/two_hops"]) == (2, 2)
    assert (values["empty_results/drug_field"], values["empty_results/two_hops"]) == (1 / 2, 2 / 3)
    assert (values["recovered/drug_field"], values["recovered/two_hops"]) == (1 / 2, 0)


def test_no_share_is_reported_where_there_is_nothing_to_take_a_share_of() -> None:
    values = rewards([finished("drug_field", ROWS)])
    assert values["agent/empty_results"] == 0
    assert not [name for name in values if "recovered" in name]
    assert "agent/empty_results" not in rewards([finished("drug_field", FAILED)])


def test_the_entropy_of_what_was_sampled_is_the_mean_over_tokens_not_over_rollouts() -> None:
    turns = (Turn((1,), (2, 3, 4), (-1.0, -2.0, -3.0)), Turn((1,), (2,), (-6.0,)))
    rollouts = [
        FinishedRollout("r", "g", None, 1.1, turns, (), None),
        FinishedRollout("s", "g", None, 1.1, (), (), None),
    ]
    assert sampled_entropy(rollouts) == {"policy/entropy": 3.0}
    assert sampled_entropy(rollouts[1:]) == {}, "a server that sends no log-probabilities"
