"""Intervals and tests give the values that the books give."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sql_agent.evaluation.statistics import bootstrap_interval, mcnemar, paired_bootstrap, share_interval


@pytest.fixture
def _many_resamples(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sql_agent.evaluation.statistics.RESAMPLES", 4000)


@pytest.mark.parametrize(
    ("gained", "lost", "p"),
    [
        (0, 0, 1.0),
        (5, 5, 1.0),
        (0, 5, 2 / 32),
        (1, 7, 2 * (1 + 8) / 256),
        (10, 2, 2 * (1 + 12 + 66) / 4096),
        (2, 10, 2 * (1 + 12 + 66) / 4096),
    ],
)
def test_mcnemars_exact_test_by_hand(gained: int, lost: int, p: float) -> None:
    assert mcnemar(gained, lost) == pytest.approx(p, abs=1e-12)


def test_mcnemars_test_takes_more_changes_than_a_float_has_exponents() -> None:
    assert 0.0 <= mcnemar(900, 300) < 1e-40  # 2 ** 1200 is no float
    assert mcnemar(600, 600) == 1.0


@pytest.mark.usefixtures("_many_resamples")
def test_the_interval_of_80_right_of_100_is_that_of_the_binomial_distribution() -> None:
    # Of the binomial distribution with n=100, p=0.8: P(X <= 71) = 0.0200, P(X <= 72) = 0.0342 and
    # P(X <= 86) = 0.9531, P(X <= 87) = 0.9747, P(X <= 88) = 0.9874.
    low, high = bootstrap_interval([1.0] * 80 + [0.0] * 20)
    assert low == pytest.approx(0.72, abs=0.011)
    assert high == pytest.approx(0.875, abs=0.011)


def test_two_different_values_may_both_be_drawn_twice() -> None:
    assert bootstrap_interval([0.0, 1.0]) == (0.0, 1.0)  # each in a quarter of the resamples


def test_the_same_seed_gives_the_same_interval_and_another_one_another() -> None:
    values = [0.1 * (i % 7) + 0.013 * i for i in range(40)]
    assert bootstrap_interval(values, seed=3) == bootstrap_interval(values, seed=3)
    assert bootstrap_interval(values, seed=3) != bootstrap_interval(values, seed=4)


@given(st.lists(st.floats(-1e3, 1e3), min_size=1, max_size=30))
def test_an_interval_lies_among_the_values(values: list[float]) -> None:
    low, high = bootstrap_interval(values)
    assert min(values) - 1e-9 <= low <= high <= max(values) + 1e-9


def test_ten_right_of_ten_may_be_luck() -> None:
    low, one = share_interval([1.0] * 10)
    zero, high = share_interval([0.0] * 10)
    assert (zero, one) == (0.0, 1.0)
    assert low == pytest.approx(0.6915, abs=1e-4)  # 0.6915 ** 10 = 0.025
    assert high == pytest.approx(0.3085, abs=1e-4)
    assert share_interval([0.0, 1.0] * 10) == bootstrap_interval([0.0, 1.0] * 10)


def test_models_that_never_differ_are_not_told_apart() -> None:
    assert paired_bootstrap([0.0] * 10).model_dump() == {"mean": 0.0, "low": 0.0, "high": 0.0, "p": 1.0}


def test_models_that_always_differ_are_told_apart_as_far_as_the_resamples_allow() -> None:
    found = paired_bootstrap([0.5] * 10)
    assert (found.mean, found.low, found.high) == (0.5, 0.5, 0.5)
    assert 0 < found.p < 0.01


@pytest.mark.usefixtures("_many_resamples")
def test_the_paired_test_agrees_with_the_normal_approximation() -> None:
    # Mean 0.2, standard error sqrt((60 - 100 * 0.2²) / 100) / 10 = 0.0748, so z = 2.67 and p = 0.0075.
    found = paired_bootstrap([1.0] * 40 + [-1.0] * 20 + [0.0] * 40)
    assert found.mean == pytest.approx(0.2)
    assert found.low == pytest.approx(0.2 - 1.96 * 0.0748, abs=0.02)
    assert found.high == pytest.approx(0.2 + 1.96 * 0.0748, abs=0.02)
    assert 0.003 < found.p < 0.013


def test_gains_that_losses_outweigh_are_no_difference() -> None:
    assert paired_bootstrap([1.0, -1.0] * 20).p == 1.0
