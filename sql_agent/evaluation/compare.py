"""Compare two models on the questions that both answered."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from sql_agent.errors import ConfigError, DataError
from sql_agent.evaluation.folder import About, Key
from sql_agent.evaluation.statistics import PairedDifference, mcnemar, paired_bootstrap
from sql_agent.rollouts.metrics import is_accurate
from sql_agent.schemas import Record, RolloutRecord


class Flip(Record):
    """A question whose answer is right with one model only; `gained` says that it is the second."""

    id: str
    question: str
    task_type: str | None
    gained: bool


class PairedTest(Record):
    """How a model differs from the baseline on the questions of one set that both answered.

    `accurate` are the shares of right answers (baseline, model), `accuracy` and `score` the paired differences of them
    and of the judge's scores (0–1), `p` the p-value of McNemar's exact test on `gained` and `lost` right answers.
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
    """The tests of a model against a baseline by set; `unpaired` counts the questions that only one of them has."""

    baseline: str
    model: str
    sets: dict[str, PairedTest]
    unpaired: int


def check_comparable(evaluations: Sequence[About]) -> None:
    """Raise ConfigError when evaluations were graded by different judges, because their scores mean other things."""
    judges = {about.judge: about.model for about in evaluations}
    if len(judges) > 1:
        graded = "; ".join(f"{model} by {judge}" for judge, model in judges.items())
        raise ConfigError(
            f"the evaluations were graded by different judges: {graded}",
            hint="evaluate them again with one judge.name, and the same version of this program",
        )


def compare(
    baseline: str,
    first: Mapping[Key, RolloutRecord],
    model: str,
    second: Mapping[Key, RolloutRecord],
    *,
    seed: int = 0,
) -> Comparison:
    """Compare the graded rollouts of two models by set and id.

    Questions of the same id with other texts or references are not paired. Raises DataError when nothing is.
    """
    pairs = {key: (first[key], second[key]) for key in first if key in second and _are_paired(first[key], second[key])}
    if not pairs:
        raise DataError(
            f"{baseline} and {model} have no graded question in common", hint="evaluate both on the same question files"
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
        accurate=(_share(first for first, _ in right), _share(second for _, second in right)),
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


def _share(values: Iterable[bool]) -> float:
    counted = list(values)
    return sum(counted) / len(counted)


def _score(record: RolloutRecord) -> float:
    return record.reward.judge if record.reward else 0.0
