"""Whether a judge can be trusted: agreement with people, and attacks that must not pay."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sql_agent.cli import exits_cleanly
from sql_agent.reward.__main__ import ATTACK_LIMIT, main
from sql_agent.reward.agreement import interval, over_credit, pairwise_accuracy, quadratic_kappa, spearman
from sql_agent.reward.labelled import shipped
from sql_agent.reward.reference import grade


def array(*values: float) -> Any:
    return np.array(values, dtype=np.float64)


def test_the_reference_judge_orders_answers_as_people_do() -> None:
    labels = shipped("labels")
    assert len(labels) >= 200
    for lang in ("en", "zh"):
        cases = [case for case in labels if case.question.lang == lang]
        scores = array(*(grade(case.case).score for case in cases))
        assert spearman(scores, array(*(case.label for case in cases))) >= 0.8
        assert over_credit(scores, array(*(case.label for case in cases))) <= 5


@pytest.mark.parametrize("case", shipped("attacks"), ids=lambda case: f"{case.question.lang}-{case.kind}")
def test_no_attack_pays(case: Any) -> None:
    assert grade(case.case).score <= ATTACK_LIMIT


def test_agreement_is_full_with_oneself_and_reversed_with_the_opposite() -> None:
    labels = array(0, 0.25, 0.5, 0.75, 1.0)
    assert spearman(labels, labels) == pytest.approx(1.0)
    assert quadratic_kappa(labels, labels) == pairwise_accuracy(labels, labels) == 1.0
    assert spearman(1 - labels, labels) == pytest.approx(-1.0)
    assert quadratic_kappa(1 - labels, labels) == pytest.approx(-1.0)
    assert pairwise_accuracy(1 - labels, labels) == 0.0


def test_a_judge_that_gives_everyone_the_same_is_worth_nothing() -> None:
    labels = array(0, 0, 1, 1)
    same = array(1, 1, 1, 1)
    assert quadratic_kappa(same, labels) == 0.0
    assert pairwise_accuracy(same, labels) == 0.5
    assert over_credit(same, labels) == 50.0
    assert np.isnan(spearman(same, labels))


@given(st.lists(st.tuples(st.floats(0, 1), st.sampled_from([0.0, 0.25, 0.5, 0.75, 1.0])), min_size=5, max_size=40))
def test_an_interval_is_ordered_and_repeatable(pairs: list[tuple[float, float]]) -> None:
    scores, labels = array(*(a for a, _ in pairs)), array(*(b for _, b in pairs))
    first = interval(over_credit, scores, labels, resamples=50)
    assert first == interval(over_credit, scores, labels, resamples=50)
    assert -100 <= first[0] <= first[1] <= 100


def test_the_command_prints_tables_and_leaves_a_file(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["evaluate", "--out", str(tmp_path / "result.json")]) == 0
    assert "0 of" in capsys.readouterr().out
    result = json.loads((tmp_path / "result.json").read_text(encoding="utf-8"))
    assert result["judge"] == "reference"
    assert result["agreement"]["all"]["answers"] == result["labels"] >= 200
    assert set(result["agreement"]) >= {"comparison", "unanswerable", "aggregate"}
    low, high = result["intervals"]["spearman"]
    assert low <= result["agreement"]["all"]["spearman"] <= high


@pytest.mark.parametrize(
    ("line", "message"), [('{"answer": "x"}', "line 1: question"), ("not json", "line 1"), ("", "holds no labelled")]
)
def test_a_bad_file_is_named_with_its_line(
    line: str, message: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "labels.jsonl"
    path.write_text(line)
    assert exits_cleanly(main, ["evaluate", "--labels", str(path)]) == 2
    assert message in capsys.readouterr().err
