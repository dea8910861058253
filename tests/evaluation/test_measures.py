"""An evaluation measures under the names and by the rules of training."""

from __future__ import annotations

import pytest

from sql_agent.evaluation.measures import Price, in_samples, measure_set, price_of
from sql_agent.rollouts.metrics import by_kind, rewards, searching
from sql_agent.rollouts.trajectory import FinishedRollout
from sql_agent.schemas import Outcome, RolloutRecord, Usage
from sql_agent.tasks.medical.medical_task import TASK
from tests.support.records import EVIDENCE, REFUSAL, call, record

RECORDS = [
    record(1, 1.0, task_type="drug_field", evidence=(EVIDENCE,), evidence_read=(EVIDENCE,)),
    record(2, 0.2, task_type="drug_field", evidence=(EVIDENCE,), evidence_read=(), calls=(call(0), call(2))),
    record(3, 0.0, task_type="keyword_search", said=REFUSAL, calls=(call(0),), evidence=(EVIDENCE,), evidence_read=()),
    record(4, 1.0, task_type="unanswerable", answer=REFUSAL, said=REFUSAL, calls=(call(0),)),
    record(5, 0.0, task_type="unanswerable", answer=REFUSAL, said="tablet"),
    record(6, 0.0, task_type="drug_field", said="", calls=(), outcome=Outcome.NO_OUTPUT, turns=1),
]


def kept(record: RolloutRecord) -> FinishedRollout:
    reward = record.reward.total if record.reward else None
    return FinishedRollout(record.question.id, "g", record, reward, (), (), None)


def test_the_figures_are_those_of_training_where_training_has_them() -> None:
    figures = measure_set(RECORDS, TASK.words).all.figures
    training = rewards(map(kept, RECORDS))
    shared = figures.keys() & training.keys()
    assert {"accurate", "reward/judge", "reward/mean", "agent/sql_ok", "agent/tool_calls", "agent/turns"} <= shared
    for name in shared:
        assert figures[name].value == pytest.approx(training[name]), name
    assert figures["agent/recovered"].value == pytest.approx(searching(RECORDS)["recovered"]) == pytest.approx(1 / 3)


def test_task_types_and_languages_are_measured_by_themselves() -> None:
    chinese = record(7, 1.0, task_type="drug_field", lang="zh")
    result = measure_set([*RECORDS, chinese], TASK.words)
    assert result.by_task_type["drug_field"].questions == 4
    expected = by_kind([*RECORDS, chinese])
    for name, group in result.by_task_type.items():
        assert group.figures["accurate"].value == pytest.approx(expected[f"accurate/{name}"])
    assert {name: group.questions for name, group in result.by_language.items()} == {"en": 6, "zh": 1}


def test_right_and_wrong_refusals_are_told_apart() -> None:
    figures = measure_set(RECORDS, TASK.words).all.figures
    assert (figures["right_refusals"].value, figures["right_refusals"].count) == (0.5, 2)
    assert (figures["refused_answerable"].value, figures["refused_answerable"].count) == (0.25, 4)


def test_an_answer_is_grounded_when_all_its_evidence_was_read_and_a_refusal_is_no_answer() -> None:
    grounded = measure_set(RECORDS, TASK.words).all.figures["agent/grounded"]
    assert (grounded.value, grounded.count) == (0.5, 2)


def test_what_the_judge_failed_on_counts_as_dropped_and_never_as_zero() -> None:
    group = measure_set([record(1), record(2, None)], TASK.words).all
    assert (group.questions, group.dropped) == (1, 1)
    assert group.figures["accurate"].value == 1.0


def test_cost_is_told_only_where_a_price_is_known() -> None:
    unpriced = measure_set(RECORDS, TASK.words).all
    assert "agent/cost_usd" not in unpriced.figures
    priced = measure_set(RECORDS, TASK.words, price=Price(prompt=1e-6, completion=5e-6)).all
    assert priced.figures["agent/cost_usd"].value == pytest.approx(100e-6 + 20 * 5e-6)


def test_tokens_are_left_out_where_the_server_counts_none() -> None:
    figures = measure_set([record(1, usage=Usage())], TASK.words, price=Price(1.0, 1.0)).all.figures
    assert not figures.keys() & {"agent/prompt_tokens", "agent/completion_tokens", "agent/cost_usd"}


def test_latency_has_a_mean_a_median_and_a_95th_percentile() -> None:
    figures = measure_set([record(i, seconds=float(i)) for i in range(1, 101)], TASK.words).all.figures
    assert figures["agent/seconds"].value == 50.5
    assert figures["agent/seconds_p50"].value == 50.5
    assert figures["agent/seconds_p95"].value == pytest.approx(95.05)


def test_a_listed_model_has_a_price_a_token_and_another_has_none() -> None:
    price = price_of("gpt-4o-mini")
    assert price is not None
    assert 0 < price.prompt < price.completion < 1e-4
    assert price_of("my-own-model") is None


def test_a_mean_of_equal_values_has_no_interval_because_resampling_cannot_show_what_was_not_seen() -> None:
    figures = measure_set([record(number, 0.0) for number in range(4)], TASK.words).all.figures
    assert (figures["reward/judge"].value, figures["reward/judge"].low) == (0.0, None)
    assert figures["accurate"].high is not None, "a share has an exact one"


def test_samples_of_a_question_give_pass_at_1_pass_at_k_and_pass_all_k() -> None:
    scores = {"q1": (1.0, 1.0), "q2": (1.0, 0.0), "q3": (0.0, 0.0), "q4": (1.0, None)}
    sampled = [
        each.model_copy(update={"question": question, "correct": score == 1.0})
        for number, (name, of_question) in enumerate(scores.items())
        for question, score in zip(
            in_samples([record(number).question.model_copy(update={"id": name})], 2), of_question, strict=True
        )
        for each in [record(number, score)]
    ]
    figures = measure_set(sampled, TASK.words, samples=2).all.figures
    passed = {name: (figures[name].value, figures[name].count) for name in ("pass_at_1", "pass_at_k", "pass_all_k")}
    assert passed == {"pass_at_1": (0.5, 3), "pass_at_k": (2 / 3, 3), "pass_all_k": (1 / 3, 3)}, "q4 has one grade only"
