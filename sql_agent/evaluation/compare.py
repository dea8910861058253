"""Compare two models by paired tests on the questions that both answered."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from statistics import fmean

from sql_agent.errors import ConfigError, DataError
from sql_agent.evaluation.folder import About, Key
from sql_agent.evaluation.statistics import PairedDifference, mcnemar, paired_bootstrap
from sql_agent.rollouts.metrics import is_accurate
from sql_agent.schemas import Record, RolloutRecord


class Flip(Record):
    """A question that only one of two models answered correctly: the second model if `gained`."""

    id: str
    question: str
    task_type: str | None
    gained: bool


class PairedTest(Record):
    """A comparison of a model with the baseline on the questions of one set that both models answered.

    `accurate` are the shares of correct answers (baseline, model). `gained` questions only the model answered right,
    `lost` questions only the baseline; `p` is that of McNemar's exact test on the two numbers. `accuracy` and
    `score` are the paired differences of the shares and of the judge's scores (0–1).
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
    """The tests of a model against a baseline, keyed by question set. `unpaired` counts questions in no test."""

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
    baseline: str,
    first: Mapping[Key, RolloutRecord],
    model: str,
    second: Mapping[Key, RolloutRecord],
    *,
    seed: int = 0,
) -> Comparison:
    """Compare the graded rollouts of two models, paired by set and question id.

    Questions with different texts or references are not paired.
    """
    pairs = {key: (first[key], second[key]) for key in first if key in second and _are_paired(first[key], second[key])}
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


def _are_paired(first: RolloutRecord, second: RolloutRecord) -> bool:
    asked, graded = [(r.question.question, r.question.answer) for r in (first, second)], (first.reward, second.reward)
    return asked[0] == asked[1] and None not in graded


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
            Flip(
                id=first.question.id,
                question=first.question.question,
                task_type=first.question.task_type,
                gained=is_accurate(second),
            )
            for first, second in pairs
            if is_accurate(first) != is_accurate(second)
        ),
    )


def _score(record: RolloutRecord) -> float:
    return record.reward.judge if record.reward else 0.0
