"""Agreement is measured as the literature defines it, with an interval or a reason why not."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sql_agent.judge_eval.agreement import (
    MEASURES,
    estimate,
    over_credit,
    pairwise_accuracy,
    quadratic_kappa,
    spearman,
)
from tests.support.judge_evaluation import array


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
    first = estimate(over_credit, scores, labels)
    assert first == estimate(over_credit, scores, labels)
    assert first.low is not None
    assert first.high is not None
    assert -100 <= first.low <= first.high <= 100


@given(
    st.lists(st.tuples(st.floats(0, 1), st.sampled_from([0.0, 0.25, 0.5, 0.75, 1.0])), max_size=12),
    st.sampled_from(sorted(MEASURES)),
)
@settings(max_examples=40)
def test_a_measure_has_a_value_with_its_interval_or_a_reason_why_not(
    pairs: list[tuple[float, float]], name: str
) -> None:
    result = estimate(MEASURES[name], array(*(a for a, _ in pairs)), array(*(b for _, b in pairs)))
    if result.undefined:
        assert (result.value, result.low, result.high) == (None, None, None)
    else:
        assert result.value is not None
        assert result.low is not None
        assert result.high is not None
        assert np.isfinite([result.value, result.low, result.high]).all()
        assert result.low <= result.high
