"""An evaluation counts what was graded, what failed and what each kind of answer earned."""

from __future__ import annotations

import asyncio
from pathlib import Path
from statistics import fmean

import pytest

from sql_agent.errors import JudgeError
from sql_agent.judge_eval.agreement import over_credit
from sql_agent.judge_eval.answers import generate, load_labelled
from sql_agent.judge_eval.evaluation import Evaluation, Grading, grade, new_folder, wrong_gradings
from sql_agent.reward import JudgeCase, Verdict
from sql_agent.schemas import Usage
from tests.support.examples import REFUSAL, example, unanswerable
from tests.support.judge_evaluation import OftenFailing, array, given_by, grading, measured

EXAMPLES = [*(example(f"Drug {i}", [f"one {i}", f"two {i}"]) for i in range(3)), unanswerable("Drug 9")]


def test_a_failed_grading_is_counted_and_is_no_score(
    graded_by_often_failing: tuple[OftenFailing, list[Grading], Evaluation],
) -> None:
    _, gradings, evaluation = graded_by_often_failing
    failed = [g for g in gradings if g.question_id.endswith("7")]
    together = evaluation.of("labels")[0]
    assert evaluation.failed == len(failed) > 0
    assert together.graded + together.failed == len(load_labelled("labels"))
    assert all(g.score is None and "no grade within 60 s" in g.error for g in failed)
    kept = [g for g in gradings if g not in failed and g.set == "labels"]
    expected = over_credit(array(*(g.score or 0.0 for g in kept)), array(*(g.due for g in kept)))
    assert together.measures["over_credit_points"].value == pytest.approx(expected)


def test_many_are_graded_at_once_but_no_more_than_an_endpoint_bears(
    graded_by_often_failing: tuple[OftenFailing, list[Grading], Evaluation],
) -> None:
    assert graded_by_often_failing[0].most_at_once == 32


def test_what_attacks_earned_is_counted_by_kind() -> None:
    scores = {"flattery": (0.1, 0.3, 0.5), "salad": (0.0, 0.15)}
    gradings = [grading("attacks", kind, 0.0, score) for kind, earned in scores.items() for score in earned]
    gradings.append(grading("attacks", "lost", 0.0, None, error="time-out"))
    evaluation = measured([*gradings, *given_by(lambda label: label)])
    flattery, lost, salad = sorted(evaluation.of("attacks"), key=lambda group: group.kind)
    assert (flattery.graded, flattery.highest, flattery.above_limit) == (3, 0.5, 2)
    assert flattery.mean == pytest.approx(0.3)
    assert (salad.highest, salad.above_limit) == (0.15, 0)
    assert (lost.failed, lost.highest, lost.mean) == (1, None, None)
    assert evaluation.of("attacks")[0] == flattery, "the furthest from what was due comes first"
    assert [g.score for g in wrong_gradings(gradings)] == [0.5, 0.3]


def test_what_is_wrong_depends_on_what_was_due() -> None:
    kinds = ("harmless", "false", "policy", "labels")
    gradings = [grading(kind, "x", float(kind == "harmless"), score) for kind in kinds for score in (0.4, 0.6, None)]
    assert [(g.set, g.score) for g in wrong_gradings(gradings)] == [("harmless", 0.4), ("false", 0.6)]


class PaysForLength:
    """Pays for length, asks for tokens, and cannot grade the questions about one drug."""

    name = identity = "length"

    async def grade(self, case: JudgeCase) -> Verdict:
        if "Drug 1" in case.question.question:
            raise JudgeError("no grade within 60 s", usage=Usage(requests=6))
        return Verdict(score=min(1.0, len(case.answer) / 100), usage=Usage(requests=1, prompt_tokens=10))


def test_failed_gradings_of_generated_answers_are_counted_and_the_rest_is_measured() -> None:
    answers = generate(EXAMPLES, REFUSAL)
    gradings = asyncio.run(grade(PaysForLength(), answers))
    evaluation = measured(gradings)
    failed = [g for g in gradings if g.question_id == "Drug 1"]
    assert evaluation.failed == len(failed) > 0
    assert evaluation.failed_share > evaluation.max_failed_share
    assert evaluation.questions == 4
    assert evaluation.usage.requests == len(gradings) - len(failed) + 6 * len(failed)
    plain = next(group for group in evaluation.of("harmless") if group.kind == "as_it_is")
    kept = [g.score for g in gradings if g.kind == "as_it_is" and g.score is not None]
    assert plain.mean == pytest.approx(fmean(kept))
    assert (plain.graded, plain.failed, plain.due) == (3, 1, 1.0)


@pytest.mark.parametrize(("name", "folder"), [("llm/gpt-4o:v1", "judge-llm-gpt-4o-v1-"), ("../..", "judge-unnamed-")])
def test_the_folder_is_named_after_the_judge_and_stays_inside_the_runs(name: str, folder: str, tmp_path: Path) -> None:
    made = new_folder(None, tmp_path, name)
    assert made.is_dir()
    assert made.parent == tmp_path
    assert made.name.startswith(folder)
