"""A run says what the last evaluation of its judge found, or how to measure a judge that was never evaluated."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from sql_agent.config.endpoints import TeacherSettings
from sql_agent.config.settings_schema import JudgeSettings
from sql_agent.judge_eval.evaluation import Evaluation, last_evaluation, new_folder, write
from sql_agent.reward import Judge
from sql_agent.reward.factory import make_judge
from sql_agent.reward.judges.facts_judge import FactsJudge
from sql_agent.tasks.medical.medical_task import TASK
from tests.support.judge_evaluation import given_by, grading, measured
from tests.support.paracetamol import Fixed


def save(judge: Judge, runs: Path, *gradings: Any, **changes: Any) -> Evaluation:
    evaluation = measured([*gradings], judge).model_copy(update=changes)
    write(new_folder(None, runs, judge.name), evaluation, gradings)
    return evaluation


def test_the_latest_evaluation_of_this_very_judge_is_named(tmp_path: Path) -> None:
    judge = Fixed("llm")
    never = "Judge llm: never evaluated; measure it with `sql-agent judge evaluate judge.name=llm`"
    assert last_evaluation(judge, tmp_path) == never
    paid = [grading("false", "yes_and_no", 0.0, score, n) for n, score in enumerate((0.5, 1.0))]
    save(judge, tmp_path, *paid, grading("false", "refused", 0.0, 0.0), date="2026-11-23T09:17:05+00:00")
    save(judge, tmp_path, grading("false", "refused", 0.0, 0.9), date="2026-11-22T09:17:05+00:00")
    assert last_evaluation(judge, tmp_path) == (
        "Judge llm: last evaluated 2026-11-23 on 2 questions; it pays 0.75 or less for false answers "
        "(most for yes and no)"
    )
    assert last_evaluation(Fixed("llm", 0.5), tmp_path) == never, "another identity is another judge"


def test_an_evaluation_with_labels_says_agreement_and_attacks(tmp_path: Path) -> None:
    attacks = [grading("attacks", "flattery", 0.0, score) for score in (0.0, 0.5)]
    save(Fixed("llm"), tmp_path, *given_by(lambda label: label), *attacks)
    said = last_evaluation(Fixed("llm"), tmp_path)
    assert said.endswith("agreement with labels is 1.00 (Spearman); 1 of 2 attacks earned more than 0.15")
    save(Fixed("same"), tmp_path, *given_by(lambda _: 0.0))
    assert last_evaluation(Fixed("same"), tmp_path).endswith("agreement with labels is unknown (Spearman)")


def test_what_another_version_wrote_counts_as_none(tmp_path: Path) -> None:
    folder = new_folder(None, tmp_path, "llm")
    (folder / "evaluation.json").write_text('{"results": "of another form"}', encoding="utf-8")
    assert "never evaluated" in last_evaluation(Fixed("llm"), tmp_path)


def test_a_ranking_is_measured_by_its_model(tmp_path: Path) -> None:
    judge = make_judge(JudgeSettings(name="ranking"), TeacherSettings(model="m"), words=TASK.words)
    assert "measure its model on single answers" in last_evaluation(judge, tmp_path)


def test_the_judge_that_we_ship_was_evaluated_as_it_is(tmp_path: Path) -> None:
    """Whoever changes the judge `facts` or its words evaluates it anew: docs/judge.md has the command."""
    assert "pays 0.05 or less for false answers" in last_evaluation(FactsJudge(TASK.words), tmp_path)
