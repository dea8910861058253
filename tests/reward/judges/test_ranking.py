"""What the judge `ranking` is shown, and how far it is trusted: no further than the model behind it."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from sql_agent.config.settings import JudgeSettings, TeacherSettings
from sql_agent.errors import ConfigError
from sql_agent.judge_eval.trust import check_trust, save_evaluation
from sql_agent.reward import GroupJudge, Judge
from sql_agent.reward.factory import make_judge
from sql_agent.reward.judges.ranking import RankingJudge
from sql_agent.tasks.medical.medical_task import TASK
from tests.support.judge_evaluation import given_by, measured
from tests.support.llm_judge import CALL, CASE

TEACHER = TeacherSettings(model="m", base_url="http://127.0.0.1:9/v1")


def make(name: str, *, model: str = "m", **settings: Any) -> tuple[Judge, JudgeSettings]:
    teacher = TEACHER.model_copy(update={"model": model})
    chosen = JudgeSettings(name=name, **({"cache": False} | settings))
    return make_judge(chosen, teacher, words=TASK.words), chosen


def save(judge: Judge, folder: Path, scores: Callable[[float], float] = lambda label: label) -> None:
    """Keep an evaluation in which `judge` made of each label what `scores` says."""
    assert save_evaluation(judge, measured(given_by(scores)), folder)


def test_a_ranking_by_a_model_that_was_never_evaluated_is_warned_of(tmp_path: Path) -> None:
    """Though the judge that grades its single answers was."""
    judge, settings = make("ranking", evaluations_dir=tmp_path)
    warning = check_trust(judge, settings) or ""
    assert "ranking (llm) was never evaluated: run `sql-agent judge evaluate judge.name=llm`" in warning
    assert settings.absolute not in warning


def test_a_ranking_is_trusted_once_its_model_was_evaluated_as_llm(tmp_path: Path) -> None:
    llm, settings = make("llm", evaluations_dir=tmp_path)
    save(llm, tmp_path)
    assert check_trust(*make("ranking", evaluations_dir=tmp_path)) is None
    assert "never evaluated" in (check_trust(*make("ranking", model="other", evaluations_dir=tmp_path)) or "")
    assert check_trust(*make("ranking", absolute="llm", evaluations_dir=tmp_path)) is None
    assert check_trust(llm, settings) is None


def test_a_ranking_by_a_model_that_judges_badly_is_refused(tmp_path: Path) -> None:
    llm, _ = make("llm", evaluations_dir=tmp_path)
    save(llm, tmp_path, lambda label: 1 - label)
    with pytest.raises(ConfigError, match=r"ranking \(llm\) agrees too little"):
        check_trust(*make("ranking", evaluations_dir=tmp_path))
    assert "weak" in (check_trust(*make("ranking", evaluations_dir=tmp_path, allow_weak=True)) or "")


def test_a_bad_judge_of_single_answers_is_refused_behind_a_ranking_too(tmp_path: Path) -> None:
    llm, _ = make("llm", evaluations_dir=tmp_path)
    other, _ = make("llm:other", evaluations_dir=tmp_path)
    save(llm, tmp_path)
    save(other, tmp_path, lambda label: 1 - label)
    with pytest.raises(ConfigError, match=r"ranking \(llm:other\) agrees too little"):
        check_trust(*make("ranking", absolute="llm:other", evaluations_dir=tmp_path))


def test_an_evaluation_of_the_single_answers_is_none_of_the_ranking() -> None:
    ranking, absolute = make("ranking", absolute="llm")[0], make("llm")[0]
    assert isinstance(ranking, GroupJudge)
    assert ranking.identity != absolute.identity
    assert ranking.identity != make("ranking", absolute="llm", model="other")[0].identity


def test_what_the_agents_wrote_comes_after_all_that_is_the_same() -> None:
    judge, _ = make("ranking")
    assert isinstance(judge, RankingJudge)
    prompts = [
        judge.prompt([CASE.model_copy(update={"answer": answer}) for answer in answers])
        for answers in (("pain", "fever"), ("both {question}", "none", "pain"))
    ]
    first, second = (prompt.split("\n<<<")[0] for prompt in prompts)
    assert first == second
    assert json.dumps(CASE.question.answer) in first
    assert CALL.sql not in first
    assert CALL.sql in prompts[0]
    assert "both {question}" in prompts[1]
