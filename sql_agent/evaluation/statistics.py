"""Compute confidence intervals of means and shares, and compare two models by paired tests on the same questions."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import comb
from statistics import fmean

import numpy as np
import numpy.typing as npt

from sql_agent.errors import ConfigError, DataError
from sql_agent.evaluation.folder import About, Key
from sql_agent.rollouts.metrics import is_accurate
from sql_agent.schemas import Record, RolloutRecord

RESAMPLES = 2000
_BATCH = 4_000_000  # maximum number of random numbers in memory; 8 bytes each, 32 MB
_PERCENTILES = (2.5, 97.5)

Values = npt.NDArray[np.float64]


class PairedDifference(Record):
    """A mean difference, its 95 % interval, and the two-sided p-value of the hypothesis of no difference."""

    mean: float
    low: float
    high: float
    p: float


def bootstrap_interval(values: Sequence[float], *, seed: int = 0) -> tuple[float, float]:
    """Return a 95 % percentile bootstrap interval of the mean (Efron 1979). Equal `values` give the width 0."""
    if min(values) == max(values):
        return float(values[0]), float(values[0])
    low, high = np.percentile(_resampled_means(np.asarray(values, dtype=np.float64), seed), _PERCENTILES)
    return float(low), float(high)


def share_interval(values: Sequence[float], *, seed: int = 0) -> tuple[float, float]:
    """Return a 95 % bootstrap interval of a share, given 1.0 or 0.0 for each case.

    If all cases are equal, return the interval of Clopper and Pearson (1934): a bootstrap interval would have width 0,
    but with 0 successes in 10 cases the true share can be as high as 30 %.
    """
    if min(values) != max(values):
        return bootstrap_interval(values, seed=seed)
    bound = 0.025 ** (1 / len(values))  # the share at which this many equal cases have a probability of 2.5 %
    return (bound, 1.0) if values[0] else (0.0, 1.0 - bound)


def paired_bootstrap(differences: Sequence[float], *, seed: int = 0) -> PairedDifference:
    """Return the mean of `differences` (one per question that two models answered), with interval and p-value.

    The p-value is the share of resamples, shifted to a mean of 0, whose mean is at least as far from 0 as the observed
    mean (Efron and Tibshirani 1993, section 16.4). The observed mean counts as a resample, so the p-value is never 0.
    """
    low, high = bootstrap_interval(differences, seed=seed)
    values = np.asarray(differences, dtype=np.float64)
    observed = float(values.mean())
    # With a tolerance, because rounding makes equal means differ.
    extreme = np.abs(_resampled_means(values - observed, seed)) >= abs(observed) - 1e-12
    p = (1 + int(extreme.sum())) / (1 + RESAMPLES)
    return PairedDifference(mean=observed, low=low, high=high, p=p)


def mcnemar(gained: int, lost: int) -> float:
    """Return the two-sided exact p-value of McNemar's test (McNemar 1947, with the binomial distribution).

    `gained` + `lost` questions are answered correctly by only one of two models. If the models were equally good, each
    model would win such a question with probability 1/2. The p-value is the probability of a split at least as uneven.
    """
    changed = gained + lost
    if not changed:
        return 1.0
    tail = sum(comb(changed, k) for k in range(min(gained, lost) + 1))
    return min(1.0, tail / (1 << (changed - 1)))


def _resampled_means(values: Values, seed: int) -> Values:
    rng, size = np.random.default_rng(seed), len(values)
    batch = max(1, _BATCH // size)
    rows = [min(batch, RESAMPLES - start) for start in range(0, RESAMPLES, batch)]
    return np.concatenate([values[rng.integers(0, size, size=(count, size))].mean(axis=1) for count in rows])


class Flip(Record):
    """A question that only one of two models answered correctly; `gained` is true if it was the second model."""

    id: str
    question: str
    task_type: str | None
    gained: bool


class PairedTest(Record):
    """A comparison of a model with the baseline on the questions of one set that both models answered.

    `accurate` are the shares of correct answers (baseline, model). Only the model answered `gained`
    questions correctly, and only the baseline `lost` questions; `p` is the p-value of McNemar's exact test on both.
    `accuracy` and `score` are the paired differences of the shares and of the judge's scores (0–1).
    """

    questions: int
    accurate: tuple[float, float]
    gained: int
    lost: int
    p: float
    accuracy: PairedDifference
    score: PairedDifference
    flips: tuple[Flip, ...]


class Comparison(Record):
    """The tests of a model against a baseline, keyed by question set.

    `unpaired` is the number of questions that are not tested, because only one model was asked, one rollout was not
    graded, or the questions differ.
    """

    baseline: str
    model: str
    sets: dict[str, PairedTest]
    unpaired: int


def check_comparable(evaluations: Sequence[About]) -> None:
    judges = {about.judge: about.model for about in evaluations}
    if len(judges) > 1:
        graded = "; ".join(f"{model} by {judge}" for judge, model in judges.items())
        raise ConfigError(
            f"the evaluations were graded by different judges: {graded}",
            hint="evaluate all models again with one judge.name and one version of this program",
        )


def compare(
    baseline: str, first: Mapping[Key, RolloutRecord], model: str, second: Mapping[Key, RolloutRecord], *, seed: int = 0
) -> Comparison:
    """Compare the graded rollouts of two models, paired by set and question id. Raises DataError if there is no pair.

    Questions with different texts or references are not paired.
    """
    pairs = {key: (first[key], second[key]) for key in first if key in second and _is_pair(first[key], second[key])}
    if not pairs:
        raise DataError(
            f"{baseline} and {model} have no graded question in common",
            hint="evaluate both models on the same question files",
        )
    names = dict.fromkeys(name for name, _ in pairs)
    return Comparison(
        baseline=baseline,
        model=model,
        sets={name: _test([pair for (of, _), pair in pairs.items() if of == name], seed) for name in names},
        unpaired=len(first.keys() | second.keys()) - len(pairs),
    )


def _is_pair(first: RolloutRecord, second: RolloutRecord) -> bool:
    one, other = first.question, second.question
    same = (one.question, one.answer) == (other.question, other.answer)
    return same and first.reward is not None and second.reward is not None


def _test(pairs: Sequence[tuple[RolloutRecord, RolloutRecord]], seed: int) -> PairedTest:
    right = [(is_accurate(first), is_accurate(second)) for first, second in pairs]
    gained, lost = right.count((False, True)), right.count((True, False))
    return PairedTest(
        questions=len(pairs),
        accurate=(fmean(first for first, _ in right), fmean(second for _, second in right)),
        gained=gained,
        lost=lost,
        p=mcnemar(gained, lost),
        accuracy=paired_bootstrap([float(second) - float(first) for first, second in right], seed=seed),
        score=paired_bootstrap([_score(second) - _score(first) for first, second in pairs], seed=seed),
        flips=tuple(
            Flip(id=asked.id, question=asked.question, task_type=asked.task_type, gained=second)
            for asked, (first, second) in zip((record.question for record, _ in pairs), right, strict=True)
            if first != second
        ),
    )


def _score(record: RolloutRecord) -> float:
    return record.reward.judge if record.reward else 0.0
