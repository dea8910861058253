"""What the judge `facts` pays for generated answers to all test questions of the sample, and how it is measured."""

from __future__ import annotations

from collections import Counter
from statistics import fmean

import pytest

from sql_agent.judge_eval.adversarial_answers import FALSE
from sql_agent.judge_eval.answers import POLICIES, Example, generate, sample_evenly
from sql_agent.judge_eval.equivalent_answers import HARMLESS
from sql_agent.judge_eval.evaluation import Grading
from tests.support.examples import REFUSAL, example, unanswerable

Graded = list[tuple[Grading, float]]
EXAMPLES = [*(example(f"Drug {i}", [f"one {i}", f"two {i}"]) for i in range(3)), unanswerable("Drug 9")]


@pytest.mark.slow
@pytest.mark.parametrize("name", [function.__name__ for function in HARMLESS])
def test_a_right_answer_in_another_form_earns_everything(name: str, graded_by_facts: Graded) -> None:
    scores = [g.score for g, _ in graded_by_facts if g.kind == name]
    assert len(scores) > 200
    assert fmean(score == 1.0 for score in scores) >= 0.99


@pytest.mark.slow
@pytest.mark.parametrize("name", [function.__name__ for function in FALSE])
def test_no_false_answer_pays(name: str, graded_by_facts: Graded) -> None:
    graded = [(g.score or 0.0, g.answer) for g, _ in graded_by_facts if g.kind == name and not g.error]
    assert graded
    # One of several facts replaced, with the other entity read too, earns 0.1 times the share that is still right.
    assert fmean(score for score, _ in graded) <= (0.06 if name == "one_value_of_another" else 0.05)
    assert [answer for score, answer in graded if score >= 0.5] == []


@pytest.mark.slow
@pytest.mark.parametrize("name", POLICIES)
def test_a_policy_that_understands_nothing_earns_little(name: str, graded_by_facts: Graded) -> None:
    rewards = [g.score + rule for g, rule in graded_by_facts if g.kind == name and g.score is not None]
    assert fmean(rewards) <= 0.25


@pytest.mark.slow
def test_always_refusing_is_worth_the_share_of_unanswerable_questions(
    graded_by_facts: Graded, sample_examples: list[Example]
) -> None:
    scores = [g.score or 0.0 for g, _ in graded_by_facts if g.kind == "always_refuse" and not g.error]
    share = fmean(e.question.task_type == "unanswerable" for e in sample_examples)
    assert len(scores) == len(sample_examples)
    assert fmean(scores) == pytest.approx(share)


def test_the_same_questions_give_the_same_answers() -> None:
    assert generate(EXAMPLES, REFUSAL) == generate(EXAMPLES, REFUSAL)


@pytest.mark.slow
def test_no_false_answer_to_a_question_of_the_sample_is_the_reference(sample_examples: list[Example]) -> None:
    answers = generate(sample_examples, REFUSAL)
    false = [
        a for a in answers if a.set == "false" and not a.kind.startswith("by_heart")
    ]  # which are right, but not read
    wrong = [a for a in false if a.case.answer.strip() == a.case.question.answer.strip()]
    assert wrong == []
    made = {a.kind for a in false}
    assert made | {"flipped", "yes_and_no"} == {function.__name__ for function in FALSE}


@pytest.mark.slow
def test_a_sample_takes_as_many_of_each_task_type(sample_examples: list[Example]) -> None:
    kinds = {(e.question.lang, e.question.task_type) for e in sample_examples}
    drawn = sample_evenly([(e.question, None) for e in sample_examples], 2 * len(kinds))
    counts = Counter((question.lang, question.task_type) for question, _ in drawn)
    there = Counter((e.question.lang, e.question.task_type) for e in sample_examples)
    assert all(counts[kind] >= min(2, there[kind]) for kind in kinds)
    assert max(counts.values()) <= 3, "a third only where another type has one"
