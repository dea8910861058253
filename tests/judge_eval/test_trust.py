"""Training refuses a judge that pays for false answers, and warns of one that nobody evaluated."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from sql_agent.config.settings import JudgeSettings
from sql_agent.errors import ConfigError
from sql_agent.judge_eval.dataset import shipped
from sql_agent.judge_eval.evaluate import Grading, measure
from sql_agent.judge_eval.generation import generate
from sql_agent.judge_eval.robustness import Robustness, grade_generated, measure_robustness
from sql_agent.judge_eval.trust import check_trust, save_evaluation, save_robustness
from sql_agent.reward import Judge
from sql_agent.reward.judges.base import JudgeCase, Verdict
from sql_agent.reward.judges.facts import FactsJudge
from sql_agent.tasks.medical.medical_task import TASK
from tests.support.examples import REFUSAL, example, unanswerable

NAMES = "abcdefghijklmnopqrstuvwx"
EXAMPLES = [*(example(f"Drug {x}", [f"one {x}{x}", f"two {x}{x}"]) for x in NAMES), unanswerable("Drug z")]


class PaysForWords:
    """Pays for each fact that stands anywhere in the answer, and so for "It is false that …"."""

    name = identity = "pays for words"

    async def grade(self, case: JudgeCase) -> Verdict:
        facts = case.question.answer.split("; ")
        return Verdict(score=sum(fact in case.answer for fact in facts) / len(facts))


def evaluated(judge: Judge, questions: int = len(EXAMPLES)) -> Robustness:
    graded = asyncio.run(grade_generated(judge, generate(EXAMPLES[:questions], REFUSAL)))
    return measure_robustness(graded, judge=judge.name, files=["mine"], max_failed_share=0.05)


def test_a_judge_that_pays_for_a_negated_answer_is_refused_unless_told_otherwise(tmp_path: Path) -> None:
    judge, settings = PaysForWords(), JudgeSettings(evaluations_dir=tmp_path)
    assert "never evaluated" in (check_trust(judge, settings) or "")
    robustness = evaluated(judge)
    assert next(r for r in robustness.results if r.name == "negated").total.mean == 1.0
    assert save_robustness(judge, robustness, tmp_path) is not None
    with pytest.raises(ConfigError, match=r"pays 1\.00 in the mean for false answers") as refusal:
        check_trust(judge, settings)
    assert "judge.max_false_reward is 0.15" in str(refusal.value)
    assert "judge.allow_weak=true" in str(refusal.value.hint)
    assert "is weak" in (check_trust(judge, settings.model_copy(update={"allow_weak": True})) or "")
    assert check_trust(judge, settings.model_copy(update={"max_false_reward": 1.0})) is None


def test_a_judge_that_pays_for_facts_only_is_trained_with(tmp_path: Path) -> None:
    class AnotherIdentity(FactsJudge):
        @property
        def identity(self) -> str:
            return "facts of the test"

    judge, settings = AnotherIdentity(TASK.words), JudgeSettings(evaluations_dir=tmp_path)
    assert "never evaluated" in (check_trust(judge, settings) or "")
    save_robustness(judge, evaluated(judge), tmp_path)
    assert check_trust(judge, settings) is None


def test_labels_of_prose_say_nothing_of_a_judge_that_reads_facts_only(tmp_path: Path) -> None:
    judge, labels = FactsJudge(TASK.words), shipped("labels")
    gradings = [Grading("labels", case, Verdict(score=1 - case.label)) for case in labels]
    weak = measure(gradings, judge="facts", labels_file="labels", attacks_file="attacks", max_failed_share=0.05)
    assert save_evaluation(judge, weak, tmp_path) is not None
    save_robustness(judge, evaluated(judge), tmp_path)
    assert check_trust(judge, JudgeSettings(evaluations_dir=tmp_path)) is None


def test_a_first_try_with_few_questions_is_not_kept(tmp_path: Path) -> None:
    assert save_robustness(PaysForWords(), evaluated(PaysForWords(), questions=5), tmp_path) is None
    assert list(tmp_path.iterdir()) == []


def test_an_evaluation_written_by_another_version_counts_as_none(tmp_path: Path) -> None:
    judge = PaysForWords()
    path = save_robustness(judge, evaluated(judge), tmp_path)
    assert path is not None
    path.write_text('{"results": "of another form"}', encoding="utf-8")
    assert "never evaluated" in (check_trust(judge, JudgeSettings(evaluations_dir=tmp_path)) or "")


def test_the_judge_that_we_ship_was_evaluated_as_it_is(tmp_path: Path) -> None:
    """Whoever changes the judge `facts` or its words evaluates it anew: docs/judge.md has the command."""
    assert check_trust(FactsJudge(TASK.words), JudgeSettings(evaluations_dir=tmp_path)) is None
