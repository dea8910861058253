"""What the judge `facts` pays for generated answers to all test questions of the sample, and how it is measured."""

from __future__ import annotations

import asyncio
from collections import Counter
from pathlib import Path
from statistics import fmean

import pytest

from sql_agent.errors import JudgeError
from sql_agent.judge_eval.examples import Example, sample_evenly
from sql_agent.judge_eval.generation import generate
from sql_agent.judge_eval.policies import POLICIES
from sql_agent.judge_eval.robustness import (
    Graded,
    Robustness,
    grade_generated,
    measure_robustness,
    worst,
)
from sql_agent.judge_eval.robustness_page import write_robustness_page
from sql_agent.judge_eval.transformations.falsifying import FALSE
from sql_agent.judge_eval.transformations.harmless import HARMLESS
from sql_agent.reward import rule_reward
from sql_agent.reward.judges.base import JudgeCase, Verdict
from sql_agent.schemas import Usage
from tests.support.examples import REFUSAL, example, unanswerable

EXAMPLES = [*(example(f"Drug {i}", [f"one {i}", f"two {i}"]) for i in range(3)), unanswerable("Drug 9")]


def measured(graded: list[Graded]) -> Robustness:
    return measure_robustness(graded, judge="some", files=["mine.parquet"], max_failed_share=0.05)


@pytest.mark.slow
@pytest.mark.parametrize("name", [function.__name__ for function in HARMLESS])
def test_a_right_answer_in_another_form_earns_everything(name: str, graded_by_facts: list[Graded]) -> None:
    scores = [g.score for g in graded_by_facts if g.generated.name == name]
    assert len(scores) > 500
    assert fmean(score == 1.0 for score in scores) >= 0.99


@pytest.mark.slow
@pytest.mark.parametrize("name", [function.__name__ for function in FALSE])
def test_no_false_answer_pays(name: str, graded_by_facts: list[Graded]) -> None:
    graded = [g for g in graded_by_facts if g.generated.name == name]
    assert graded
    # One of several facts replaced, with the other entity read too, earns 0.1 times the share that is still right.
    assert fmean(g.score for g in graded) <= (0.06 if name == "one_value_of_another" else 0.05)
    assert [g.generated.case.answer for g in graded if g.score >= 0.5] == []


@pytest.mark.slow
@pytest.mark.parametrize("name", [function.__name__ for function in POLICIES])
def test_a_policy_that_understands_nothing_earns_little(name: str, graded_by_facts: list[Graded]) -> None:
    graded = [g for g in graded_by_facts if g.generated.name == name]
    rewards = [g.score + rule_reward(g.generated.case.calls) for g in graded]
    assert fmean(rewards) <= 0.25


@pytest.mark.slow
def test_always_refusing_is_worth_the_share_of_unanswerable_questions(
    graded_by_facts: list[Graded], sample_examples: list[Example]
) -> None:
    scores = [g.score for g in graded_by_facts if g.generated.name == "always_refuse"]
    share = fmean(e.question.task_type == "unanswerable" for e in sample_examples)
    assert len(scores) == len(sample_examples)
    assert fmean(scores) == pytest.approx(share)


class OftenFailing:
    """Pays for length, asks for tokens, and cannot grade the questions about one drug."""

    name = identity = "often failing"

    async def grade(self, case: JudgeCase) -> Verdict:
        if "Drug 1" in case.question.question:
            raise JudgeError("no grade within 60 s <b>", usage=Usage(requests=6))
        return Verdict(score=min(1.0, len(case.answer) / 100), usage=Usage(requests=1, prompt_tokens=10))


def test_failed_gradings_are_counted_and_the_rest_is_measured_by_language_and_task_type() -> None:
    graded = asyncio.run(grade_generated(OftenFailing(), generate(EXAMPLES, REFUSAL)))
    robustness = measured(graded)
    failed = [g for g in graded if "Drug 1" in g.generated.case.question.question]
    assert robustness.failed == len(failed) > 0
    assert robustness.too_many_failed
    assert (robustness.questions, robustness.unanswerable) == (4, 1)
    assert robustness.usage.requests == len(graded) - len(failed) + 6 * len(failed)
    with pytest.raises(JudgeError, match="no grade"):
        _ = failed[0].score
    plain = next(result for result in robustness.results if result.name == "as_it_is")
    kept = [g.score for g in graded if g.generated.name == "as_it_is" and g not in failed]
    assert plain.total.mean == pytest.approx(fmean(kept))
    assert (plain.total.graded, plain.total.failed, plain.total.due) == (3, 1, 1.0)
    assert set(plain.by_lang) == {"en"}
    assert set(plain.by_task_type) == {"drug_field", "unanswerable"}
    assert robustness.summary().results[0].by_lang == {}


def test_the_same_questions_give_the_same_answers() -> None:
    assert generate(EXAMPLES, REFUSAL) == generate(EXAMPLES, REFUSAL)


@pytest.mark.slow
def test_no_false_answer_to_a_question_of_the_sample_is_the_reference(sample_examples: list[Example]) -> None:
    answers = generate(sample_examples, REFUSAL)
    wrong = [a for a in answers if a.kind == "false" and a.case.answer.strip() == a.case.question.answer.strip()]
    assert wrong == []
    made = {a.name for a in answers if a.kind == "false"}
    assert made | {"flipped", "yes_and_no"} == {function.__name__ for function in FALSE}


@pytest.mark.slow
def test_a_sample_takes_as_many_of_each_task_type(sample_examples: list[Example]) -> None:
    kinds = {(e.question.lang, e.question.task_type) for e in sample_examples}
    drawn = sample_evenly([(e.question, None) for e in sample_examples], 2 * len(kinds))
    counts = Counter((question.lang, question.task_type) for question, _ in drawn)
    assert set(counts.values()) == {2}
    assert set(counts) == kinds


def test_the_worst_are_those_furthest_from_what_was_due() -> None:
    graded = asyncio.run(grade_generated(OftenFailing(), generate(EXAMPLES, REFUSAL)))
    paid = worst(graded, "false")
    assert paid[0].score == max(g.score for g in graded if g.verdict and g.generated.kind == "false")
    assert all(g.score >= 0.1 for g in paid)
    assert max(Counter(g.generated.name for g in worst(graded, "false", of_each=2)).values()) == 2


def test_the_page_shows_what_was_paid_in_full_and_no_markup_from_data(tmp_path: Path) -> None:
    markup = "<img src=x onerror=alert(1)>"
    graded = asyncio.run(
        grade_generated(OftenFailing(), generate([*EXAMPLES, example("Drug 5", [markup, "b" * 90])], REFUSAL))
    )
    page = write_robustness_page(tmp_path, measured(graded), graded, "Not advice.").read_text(encoding="utf-8")
    assert "Not advice." in page
    assert "Say of the answer that it is wrong." in page
    assert "do not rely on these numbers" in page
    assert "no grade within 60 s &lt;b&gt;" in page
    assert markup not in page
    assert "&lt;img src=x" in page


def test_a_page_is_drawn_even_when_every_grading_failed(tmp_path: Path) -> None:
    graded = [Graded(answer, error="no endpoint") for answer in generate(EXAMPLES, REFUSAL)]
    page = write_robustness_page(tmp_path, measured(graded), graded, "Not advice.").read_text(encoding="utf-8")
    assert f"{len(graded)} of {len(graded)} gradings failed (100.0 %)" in page
