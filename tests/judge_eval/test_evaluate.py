"""An evaluation counts what was graded, what failed and what attacks earned."""

from __future__ import annotations

from pathlib import Path

import pytest

from sql_agent.errors import JudgeError
from sql_agent.judge_eval.agreement import over_credit
from sql_agent.judge_eval.dataset import shipped
from sql_agent.judge_eval.evaluate import Grading, JudgeEvaluation
from sql_agent.judge_eval.grading import CONCURRENCY, new_folder
from sql_agent.judge_eval.page import verdict
from sql_agent.reward.judges.base import Verdict
from tests.support.judge_evaluation import OftenFailing, array, given_by, measured


def test_a_failed_grading_is_counted_and_is_no_score(
    graded_by_often_failing: tuple[OftenFailing, list[Grading], JudgeEvaluation],
) -> None:
    _, gradings, evaluation = graded_by_often_failing
    failed = [g for g in gradings if g.case.question.id.endswith("7")]
    assert evaluation.failed == len(failed) > 0
    assert evaluation.agreement.answers + evaluation.agreement.failed == evaluation.labels == len(shipped("labels"))
    assert all("score" not in g.row() and "no grade within 60 s" in g.row()["error"] for g in failed)
    with pytest.raises(JudgeError, match="no grade"):
        _ = failed[0].score
    kept = [g for g in gradings if g not in failed and g.set == "labels"]
    expected = over_credit(array(*(g.score for g in kept)), array(*(g.case.label for g in kept)))
    assert evaluation.agreement.measures["over_credit_points"].value == pytest.approx(expected)


def test_many_are_graded_at_once_but_no_more_than_an_endpoint_bears(
    graded_by_often_failing: tuple[OftenFailing, list[Grading], JudgeEvaluation],
) -> None:
    assert graded_by_often_failing[0].most_at_once == CONCURRENCY


def test_what_attacks_earned_is_told_by_kind() -> None:
    case = shipped("attacks")[0]
    scores = {"flattery": (0.1, 0.3, 0.5), "salad": (0.0, 0.15)}
    gradings = [
        Grading("attacks", case.model_copy(update={"kind": kind}), Verdict(score=score))
        for kind, earned in scores.items()
        for score in earned
    ]
    gradings.append(Grading("attacks", case.model_copy(update={"kind": "lost"}), error="time-out"))
    evaluation = measured([*gradings, *given_by(lambda label: label)])
    flattery, lost, salad = sorted(evaluation.by_attack_kind, key=lambda kind: kind.kind)
    assert (flattery.attacks, flattery.highest, flattery.above_limit) == (3, 0.5, 2)
    assert flattery.mean == pytest.approx(0.3)
    assert (salad.highest, salad.above_limit) == (0.15, 0)
    assert (lost.failed, lost.highest, lost.mean) == (1, None, None)
    assert "2 of 5 attacks got through" in verdict(evaluation)[-1]


@pytest.mark.parametrize(("name", "folder"), [("llm/gpt-4o:v1", "judge-llm-gpt-4o-v1-"), ("../..", "judge-unnamed-")])
def test_the_folder_is_named_after_the_judge_and_stays_inside_the_runs(name: str, folder: str, tmp_path: Path) -> None:
    made = new_folder(None, tmp_path, name)
    assert made.is_dir()
    assert made.parent == tmp_path
    assert made.name.startswith(folder)
