"""Measure how far a judge agrees with people. Scores and labels are arrays of one length, 0.0–1.0."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import numpy.typing as npt

from sql_agent.schemas import Record

Values = npt.NDArray[np.float64]
LEVELS = 5
RESAMPLES = 1000  # of a bootstrap; the tests take fewer


def spearman(scores: Values, labels: Values) -> float:
    """Return the rank correlation, ties at their mean rank; nan when either side is constant."""
    if np.ptp(scores) == 0 or np.ptp(labels) == 0:
        return float("nan")
    return float(np.corrcoef(_ranks(scores), _ranks(labels))[0, 1])


def confusion(scores: Values, labels: Values) -> Values:
    """Count how often the judge gave each of five levels (columns) to answers labelled with each level (rows)."""
    rows, columns = (np.rint(values * (LEVELS - 1)).astype(int) for values in (labels, scores))
    counts = np.zeros((LEVELS, LEVELS))
    np.add.at(counts, (rows, columns), 1.0)
    return counts


def quadratic_kappa(scores: Values, labels: Values) -> float:
    """Return Cohen's kappa over five levels with quadratic weights (Cohen 1968): 1 is agreement, 0 is chance.

    nan when all labels are of one level, because then any score agrees as chance would.
    """
    observed = confusion(scores, labels)
    if np.count_nonzero(observed.sum(1)) < 2:
        return float("nan")
    expected = np.outer(observed.sum(1), observed.sum(0)) / len(labels)
    weights = np.subtract.outer(np.arange(LEVELS), np.arange(LEVELS)) ** 2
    return 1.0 - float((weights * observed).sum()) / float((weights * expected).sum())


def pairwise_accuracy(scores: Values, labels: Values) -> float:
    """Return the share of pairs with different labels that the judge orders alike; a tie of scores counts half."""
    right = pairs = 0.0
    for level in np.unique(labels):
        here, below = scores[labels == level], np.sort(scores[labels < level])
        right += sum(np.searchsorted(below, here, side).sum() for side in ("left", "right")) / 2
        pairs += len(here) * len(below)
    return right / pairs if pairs else float("nan")


def over_credit(scores: Values, labels: Values) -> float:
    """Return by how many points of 100 the judge scores above the labels in the mean; below 0 it is stricter."""
    return float(100 * (scores - labels).mean())


MEASURES: dict[str, Callable[[Values, Values], float]] = {
    "spearman": spearman,
    "quadratic_kappa": quadratic_kappa,
    "pairwise_accuracy": pairwise_accuracy,
    "over_credit_points": over_credit,
}


class Estimate(Record):
    """A measure with its 95 % bootstrap interval; without a value all three are None and `undefined` says why."""

    value: float | None = None
    low: float | None = None
    high: float | None = None
    undefined: str | None = None


def estimate(measure: Callable[[Values, Values], float], scores: Values, labels: Values) -> Estimate:
    """Return `measure` over the cases with its interval; no cases, or constant values, may leave it undefined."""
    if len(labels) == 0:
        return Estimate(undefined="no answer was graded")
    value = measure(scores, labels)
    if not np.isnan(value):
        low, high = interval(measure, scores, labels)
        return Estimate(value=value, low=low, high=high)
    if np.ptp(labels) == 0:
        return Estimate(undefined=f"all labels are {labels[0]:.2f}")
    if np.ptp(scores) == 0:
        return Estimate(undefined=f"all scores are {scores[0]:.2f}")
    return Estimate(undefined="all labels round to the same level")


def interval(
    measure: Callable[[Values, Values], float], scores: Values, labels: Values, *, seed: int = 0
) -> tuple[float, float]:
    """Return a 95 % percentile bootstrap interval (Efron 1979) of `measure` over the cases."""
    rng = np.random.default_rng(seed)
    chosen = rng.integers(0, len(scores), size=(RESAMPLES, len(scores)))
    values = [measure(scores[index], labels[index]) for index in chosen]
    low, high = np.nanpercentile(values, [2.5, 97.5])
    return float(low), float(high)


def _ranks(values: Values) -> Values:
    """Return ranks from 0, ties at their mean."""
    ordered = np.sort(values)
    before, through = (np.searchsorted(ordered, values, side) for side in ("left", "right"))
    ranks: Values = (before + through - 1) / 2
    return ranks
