"""Confidence intervals of means and shares, and paired tests of two models on the same questions."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from math import comb

import numpy as np
import numpy.typing as npt

from sql_agent.schemas import Record

RESAMPLES = 2000  # of a bootstrap
_AT_ONCE = 4_000_000  # random numbers held at once, 32 MB
_PERCENTILES = (2.5, 97.5)

Values = npt.NDArray[np.float64]


class PairedDifference(Record):
    """A mean difference, its 95 % interval, and the two-sided p-value of the hypothesis that it is 0."""

    mean: float
    low: float
    high: float
    p: float


def bootstrap_interval(values: Sequence[float], *, seed: int = 0) -> tuple[float, float]:
    """Return a 95 % percentile bootstrap interval of the mean (Efron 1979); the same for the same `seed`.

    Where all of `values` are equal it has no width, because resampling cannot show what was not seen. Raises ValueError
    when there are none.
    """
    if not values:
        raise ValueError("no values to resample")
    if min(values) == max(values):
        return float(values[0]), float(values[0])
    low, high = np.percentile(_resampled_means(np.asarray(values, dtype=np.float64), seed), _PERCENTILES)
    return float(low), float(high)


def share_interval(values: Sequence[float], *, seed: int = 0) -> tuple[float, float]:
    """Return a 95 % interval of a share, given 1.0 or 0.0 for each case: the bootstrap's, where it shows both.

    Where all are equal it is that of Clopper and Pearson (1934), because resampling cannot show what was not seen: none
    of 10 may well be 30 %. Raises ValueError when there are none.
    """
    if not values or min(values) != max(values):
        return bootstrap_interval(values, seed=seed)
    bound = 0.025 ** (1 / len(values))  # the share at which so many equal cases have this probability
    return (bound, 1.0) if values[0] else (0.0, 1.0 - bound)


def paired_bootstrap(differences: Sequence[float], *, seed: int = 0) -> PairedDifference:
    """Return the mean of `differences`, one for each question that two models answered, with interval and p-value.

    The p-value is the share of resamples whose mean is at least as far from 0, after the mean was shifted to 0 (Efron
    and Tibshirani 1993, section 16.4); the observed one is counted among them, so it is never 0. Raises ValueError when
    there are no differences.
    """
    low, high = bootstrap_interval(differences, seed=seed)
    values = np.asarray(differences, dtype=np.float64)
    observed = float(values.mean())
    if low == high == 0.0:
        return PairedDifference(mean=0.0, low=0.0, high=0.0, p=1.0)
    # Rounding must not part equal means, such as those of a difference that is the same everywhere.
    extreme = np.abs(_resampled_means(values - observed, seed)) >= abs(observed) - 1e-12
    p = (1 + int(extreme.sum())) / (1 + RESAMPLES)
    return PairedDifference(mean=observed, low=low, high=high, p=p)


def mcnemar(gained: int, lost: int) -> float:
    """Return the two-sided exact p-value of McNemar's test (McNemar 1947, with the binomial distribution).

    If two models were equally good, each of the `gained` + `lost` questions that only one of them answers right would
    be either's with probability 1/2. The value is the probability of a split at least as uneven; 1.0 without any.
    """
    changed = gained + lost
    if not changed:
        return 1.0
    tail = sum(comb(changed, k) for k in range(min(gained, lost) + 1))
    return min(1.0, tail / (1 << (changed - 1)))


def _resampled_means(values: Values, seed: int) -> Values:
    return np.concatenate(list(_batches_of_means(values, np.random.default_rng(seed))))


def _batches_of_means(values: Values, rng: np.random.Generator) -> Iterator[Values]:
    batch = max(1, _AT_ONCE // len(values))
    for start in range(0, RESAMPLES, batch):
        chosen = rng.integers(0, len(values), size=(min(batch, RESAMPLES - start), len(values)))
        yield values[chosen].mean(axis=1)
