"""How far a judge agrees with people. Scores and labels are arrays of equal length with values in 0.0–1.0."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import numpy.typing as npt
import pandas as pd

Values = npt.NDArray[np.float64]
LEVELS = 5


def spearman(scores: Values, labels: Values) -> float:
    """Rank correlation, ties at their mean rank; nan when either side is constant."""
    if np.ptp(scores) == 0 or np.ptp(labels) == 0:
        return float("nan")
    return float(np.corrcoef(pd.Series(scores).rank(), pd.Series(labels).rank())[0, 1])


def quadratic_kappa(scores: Values, labels: Values) -> float:
    """Cohen's kappa over five levels with quadratic weights (Cohen 1968): 1 is agreement, 0 is chance."""
    a, b = (np.rint(values * (LEVELS - 1)).astype(int) for values in (scores, labels))
    observed = np.zeros((LEVELS, LEVELS))
    np.add.at(observed, (a, b), 1.0)
    expected = np.outer(observed.sum(1), observed.sum(0)) / len(a)
    weights = np.subtract.outer(np.arange(LEVELS), np.arange(LEVELS)) ** 2
    disagreement = float((weights * expected).sum())
    return 1.0 - float((weights * observed).sum()) / disagreement if disagreement else float("nan")


def pairwise_accuracy(scores: Values, labels: Values) -> float:
    """Of all pairs with different labels, the share that the judge orders alike; a tie of scores counts half."""
    order = np.sign(np.subtract.outer(labels, labels))
    judged = np.sign(np.subtract.outer(scores, scores))
    pairs = order > 0
    return float(((judged[pairs] > 0) + 0.5 * (judged[pairs] == 0)).mean()) if pairs.any() else float("nan")


def over_credit(scores: Values, labels: Values) -> float:
    """By how many points of 100 the judge scores above the labels, in the mean; below 0 it is the stricter one."""
    return float(100 * (scores - labels).mean())


MEASURES: dict[str, Callable[[Values, Values], float]] = {
    "spearman": spearman,
    "quadratic_kappa": quadratic_kappa,
    "pairwise_accuracy": pairwise_accuracy,
    "over_credit_points": over_credit,
}


def interval(
    measure: Callable[[Values, Values], float], scores: Values, labels: Values, *, resamples: int = 1000, seed: int = 0
) -> tuple[float, float]:
    """A 95 % percentile bootstrap interval (Efron 1979) of `measure` over the cases."""
    rng = np.random.default_rng(seed)
    chosen = rng.integers(0, len(scores), size=(resamples, len(scores)))
    values = [measure(scores[index], labels[index]) for index in chosen]
    low, high = np.nanpercentile(values, [2.5, 97.5])
    return float(low), float(high)
