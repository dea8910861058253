"""Draw an evaluation of a judge: one HTML page that works offline."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from sql_agent.judge_eval.agreement import MEASURES, Estimate
from sql_agent.judge_eval.evaluate import (
    Grading,
    JudgeEvaluation,
    attacks_through,
    failures,
    graded,
)
from sql_agent.judge_eval.figures import figures
from sql_agent.judge_eval.html import write_html

_WORST = 15
_GOOD, _FAIR = 0.75, 0.4  # of kappa: Fleiss 1981, Statistical Methods for Rates and Proportions, 2nd edition


def write_page(folder: Path, evaluation: JudgeEvaluation, gradings: Sequence[Grading], disclaimer: str) -> Path:
    """Write `report.html`, which begins with `disclaimer`, into `folder` and return its path."""
    labels = graded(gradings, "labels")
    return write_html(
        folder,
        "evaluation.html.j2",
        date=evaluation.date,
        disclaimer=disclaimer,
        e=evaluation,
        measures=list(MEASURES),
        groups={"all": evaluation.agreement, **evaluation.by_task_type, **evaluation.by_lang},
        verdict=verdict(evaluation),
        good=_GOOD,
        fair=_FAIR,
        figures=figures(evaluation, gradings),
        worst=sorted((g for g in labels if _gap(g)), key=_gap, reverse=True)[:_WORST],
        through=attacks_through(gradings),
        failed=failures(gradings),
    )


def verdict(evaluation: JudgeEvaluation) -> list[str]:
    """Say in sentences what the numbers mean: agreement, over-credit, attacks."""
    kappa, surplus = (evaluation.agreement.measures[m] for m in ("quadratic_kappa", "over_credit_points"))
    caution = (
        ["Too many gradings failed for a verdict; what follows is of the rest."] if evaluation.too_many_failed else []
    )
    return [*caution, _agreement_in_words(kappa), _over_credit_in_words(surplus), _attacks_in_words(evaluation)]


def _agreement_in_words(kappa: Estimate) -> str:
    if kappa.value is None:
        return f"Agreement with the labels cannot be measured: {kappa.undefined}."
    word = "good" if kappa.value >= _GOOD else "fair" if kappa.value >= _FAIR else "weak"
    return f"Agreement with the labels is {word}: quadratic kappa {kappa.value:.2f} ({_range(kappa, '.2f')})."


def _over_credit_in_words(surplus: Estimate) -> str:
    if surplus.value is None:
        return "Over-credit cannot be measured."
    side = "above" if surplus.value >= 0 else "below"
    points = f"{abs(surplus.value):.1f} points of 100 {side} the labels"
    return f"On average it scores {points} (over-credit {surplus.value:+.1f}, {_range(surplus, '+.1f')})."


def _attacks_in_words(evaluation: JudgeEvaluation) -> str:
    tried, through = evaluation.attacks_graded, evaluation.attacks_above_limit
    if not tried:
        return "Nothing can be said about attacks: none was graded."
    if not through:
        return f"None of {tried} attacks earned more than {evaluation.attack_limit}."
    return f"{through} of {tried} attacks got through: they earned more than {evaluation.attack_limit}."


def _range(estimate: Estimate, form: str) -> str:
    return f"95 % interval {estimate.low:{form}} to {estimate.high:{form}}"


def _gap(grading: Grading) -> float:
    return abs(grading.score - grading.case.label)
