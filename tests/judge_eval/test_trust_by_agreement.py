"""A judge that was never evaluated is warned of, and one that agrees too little with people is refused."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from sql_agent.config.settings import JudgeSettings
from sql_agent.errors import ConfigError
from sql_agent.judge_eval.dataset import shipped
from sql_agent.judge_eval.evaluate import grade_all, measure
from sql_agent.judge_eval.trust import check_trust, save_evaluation
from sql_agent.reward import Judge, JudgeCase, Verdict
from tests.support.paracetamol import Fixed


def evaluation_of(made: Judge, answers: int = 60) -> Any:
    labels, attacks = shipped("labels")[:answers], shipped("attacks")[:5]
    gradings = asyncio.run(grade_all(made, labels, attacks))
    return measure(gradings, judge=made.name, labels_file="l", attacks_file="a", max_failed_share=0.05)


def test_a_judge_that_was_never_evaluated_is_warned_of_and_a_bad_one_refused(tmp_path: Path) -> None:
    class Length(Fixed):
        """Longer is better: what a weak judge amounts to."""

        async def grade(self, case: JudgeCase) -> Verdict:
            return Verdict(score=min(1.0, len(case.answer) % 7 / 7))

    weak = Length("length")
    settings = JudgeSettings(evaluations_dir=tmp_path)
    assert "never evaluated" in (check_trust(weak, settings) or "")
    few = evaluation_of(weak, answers=10)
    assert save_evaluation(weak, few, tmp_path) is None
    assert "never evaluated" in (check_trust(weak, settings) or ""), "ten answers tell nothing"
    save_evaluation(weak, evaluation_of(weak), tmp_path)
    with pytest.raises(ConfigError, match="agrees too little"):
        check_trust(weak, settings)
    assert "weak" in (check_trust(weak, settings.model_copy(update={"allow_weak": True})) or "")
    assert "never evaluated" in (check_trust(Length("length", 0.5), settings) or ""), "another identity"
