"""Measure how far a judge's scores agree with people's labels: two arrays of equal length, with values in 0.0–1.0."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import numpy.typing as npt

from sql_agent.schemas import Record

Values = npt.NDArray[np.float64]
LEVELS = 5
RESAMPLES = 1000  # number of bootstrap samples; the tests take fewer


def spearman(scores: Values, labels: Values) -> float:
    """Return the rank correlation, with ties at their mean rank; nan if all scores or all labels are equal."""
    if np.ptp(scores) == 0 or np.ptp(labels) == 0:
        return float("nan")
    return float(np.corrcoef(_ranks(scores), _ranks(labels))[0, 1])


def quadratic_kappa(scores: Values, labels: Values) -> float:
    """Return Cohen's kappa over five levels with quadratic weights (Cohen 1968): 1 is agreement, 0 is chance.

    nan if all labels round to one level, because then every score agrees as much as chance.
    """
    observed = np.zeros((LEVELS, LEVELS))  # rows: labels; columns: scores
    np.add.at(observed, tuple(np.rint(values * (LEVELS - 1)).astype(int) for values in (labels, scores)), 1.0)
    if np.count_nonzero(observed.sum(1)) < 2:
        return float("nan")
    expected = np.outer(observed.sum(1), observed.sum(0)) / len(labels)
    weights = np.subtract.outer(np.arange(LEVELS), np.arange(LEVELS)) ** 2
    return 1.0 - float((weights * observed).sum()) / float((weights * expected).sum())


def pairwise_accuracy(scores: Values, labels: Values) -> float:
    """Return the share of pairs with different labels whose scores have the order of the labels; ties count half."""
    right = pairs = 0.0
    for level in np.unique(labels):
        here, below = scores[labels == level], np.sort(scores[labels < level])
        right += sum(np.searchsorted(below, here, side).sum() for side in ("left", "right")) / 2
        pairs += len(here) * len(below)
    return right / pairs if pairs else float("nan")


def over_credit(scores: Values, labels: Values) -> float:
    """Return the mean of score - label, in hundredths; negative if the judge is stricter than the labels."""
    return float(100 * (scores - labels).mean())


MEASURES: dict[str, Callable[[Values, Values], float]] = {
    "spearman": spearman,
    "quadratic_kappa": quadratic_kappa,
    "pairwise_accuracy": pairwise_accuracy,
    "over_credit_points": over_credit,
}


class Estimate(Record):
    """A measure with its 95 % bootstrap interval. If it has no value, `undefined` says why."""

    value: float | None = None
    low: float | None = None
    high: float | None = None
    undefined: str | None = None


def estimate(measure: Callable[[Values, Values], float], scores: Values, labels: Values) -> Estimate:
    """Return `measure` of all cases with a percentile bootstrap interval (Efron 1979).

    It is undefined without cases, or if the measure needs different scores or labels.
    """
    if len(labels) == 0:
        return Estimate(undefined="no answer was graded")
    value = measure(scores, labels)
    if not np.isnan(value):
        samples = np.random.default_rng(0).integers(0, len(scores), size=(RESAMPLES, len(scores)))
        low, high = np.nanpercentile([measure(scores[of], labels[of]) for of in samples], [2.5, 97.5])
        return Estimate(value=value, low=float(low), high=float(high))
    if np.ptp(labels) == 0:
        return Estimate(undefined=f"all labels are {labels[0]:.2f}")
    if np.ptp(scores) == 0:
        return Estimate(undefined=f"all scores are {scores[0]:.2f}")
    return Estimate(undefined="all labels round to the same level")


def _ranks(values: Values) -> Values:
    """Return the ranks of `values` from 0, with ties at their mean rank."""
    ordered = np.sort(values)
    before, through = (np.searchsorted(ordered, values, side) for side in ("left", "right"))
    ranks: Values = (before + through - 1) / 2
    return ranks
