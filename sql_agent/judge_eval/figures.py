"""Lay out the figures of an evaluation: what stands where, in numbers that a template draws without any script."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from sql_agent.judge_eval.agreement import LEVELS, confusion
from sql_agent.judge_eval.evaluate import Grading, JudgeEvaluation, graded, scores_and_labels

_JITTER = 0.045
_LEVEL_NAMES = [f"{level / (LEVELS - 1):g}" for level in range(LEVELS)]
_ROUND_TO = 10.0  # points of over-credit, at which an axis ends


@dataclass(frozen=True)
class Scatter:
    """Dots in a square from 0 to 1: `dots` are (x, y, what it is), `means` are (x, y)."""

    title: str
    how: str
    dots: Sequence[tuple[float, float, str]]
    means: Sequence[tuple[float, float]]
    kind: str = "scatter"


@dataclass(frozen=True)
class Mark:
    """One value on a row's axis: where in percent, its text, its style, and the ends of its interval if it has one."""

    at: float
    text: str
    style: str
    interval: tuple[float, float] | None = None


@dataclass(frozen=True)
class Rows:
    """Values by name on one axis: `ticks` and `lines` are (percent, text), `rows` are (name, marks)."""

    title: str
    how: str
    axis: str
    ticks: Sequence[tuple[float, str]]
    lines: Sequence[tuple[float, str]]
    rows: Sequence[tuple[str, Sequence[Mark]]]
    legend: Mapping[str, str]
    kind: str = "rows"


@dataclass(frozen=True)
class HeatMap:
    """A table whose cells are (colour from -1 to 1, text); None where there is nothing."""

    title: str
    how: str
    corner: str
    columns: Sequence[str]
    rows: Sequence[tuple[str, Sequence[tuple[float, str] | None]]]
    kind: str = "heat"


Figure = Scatter | Rows | HeatMap


def figures(evaluation: JudgeEvaluation, gradings: Sequence[Grading]) -> list[Figure]:
    """Return those figures for which something was graded."""
    labels = graded(gradings, "labels")
    drawn: list[Figure] = []
    if labels:
        drawn += [_label_and_score(labels), _over_credit(evaluation), _confusion(labels)]
    if any(g.verdict and g.verdict.criteria for g in labels):
        drawn.append(_criteria(labels))
    if graded(gradings, "attacks"):
        drawn.append(_attacks(evaluation))
    return drawn


def _label_and_score(labels: Sequence[Grading]) -> Scatter:
    scores, given = scores_and_labels(labels)
    moved = given + np.random.default_rng(0).uniform(-_JITTER, _JITTER, len(given))
    names = [f"{g.case.question.id} ({g.kind}): {g.score:.2f}" for g in labels]
    return Scatter(
        "Label and score",
        "A dot is an answer, moved a little sideways so that dots do not hide each other.",
        list(zip(moved.tolist(), scores.tolist(), names, strict=True)),
        [(float(level), float(scores[given == level].mean())) for level in np.unique(given)],
    )


def _over_credit(evaluation: JudgeEvaluation) -> Rows:
    groups = {"all": evaluation.agreement, **evaluation.by_task_type}
    estimates = {name: group.measures["over_credit_points"] for name, group in groups.items() if group.answers}
    known = {name: each for name, each in estimates.items() if each.value is not None}
    ends = [end for each in known.values() for end in (each.value, each.low, each.high) if end is not None]
    low = _ROUND_TO * np.floor(min(0.0, *ends) / _ROUND_TO)
    high = _ROUND_TO * np.ceil(max(0.0, *ends) / _ROUND_TO)
    percent = _axis(float(low), float(high) if high > low else float(low) + _ROUND_TO)
    rows = []
    for name, each in known.items():
        value, least, most = (0.0 if end is None else end for end in (each.value, each.low, each.high))
        interval = percent(least), percent(most)
        rows.append(
            (_short(name), [Mark(percent(value), f"{value:+.1f}", "all" if name == "all" else "mean", interval)])
        )
    step = max(_ROUND_TO, _ROUND_TO * np.ceil((high - low) / 5 / _ROUND_TO))
    ticks = [(percent(float(tick)), f"{tick:g}") for tick in np.arange(low, high + 1, step)]
    return Rows(
        "Over-credit by task type",
        "Right of 0 the judge gives more than the label. Bars: 95 % interval.",
        "over-credit (points of 100)",
        ticks,
        [(percent(0.0), "")],
        rows,
        {},
    )


def _attacks(evaluation: JudgeEvaluation) -> Rows:
    percent = _axis(0.0, 1.0)
    rows = [
        (
            f"{_short(kind.kind)} ({kind.attacks - kind.failed})",
            [
                Mark(percent(value), f"{style} {value:.2f}", style)
                for style, value in (("highest", kind.highest), ("mean", kind.mean))
                if value is not None
            ],
        )
        for kind in evaluation.by_attack_kind
        if kind.highest is not None
    ]
    limit = evaluation.attack_limit
    return Rows(
        "Attacks by kind",
        f"An attack right of the line at {limit} got through.",
        "score",
        [(percent(tick), f"{tick:g}") for tick in (0.0, 0.25, 0.5, 0.75, 1.0)],
        [(percent(limit), "limit")],
        rows,
        {"mean": "mean", "highest": "highest"},
    )


def _confusion(labels: Sequence[Grading]) -> HeatMap:
    counts = confusion(*scores_and_labels(labels))
    shares = counts / np.maximum(counts.sum(1, keepdims=True), 1)
    rows = [
        (name, [(float(share), f"{count:.0f}") for share, count in zip(of, numbers, strict=True)])
        for name, of, numbers in zip(_LEVEL_NAMES, shares, counts, strict=True)
    ]
    return HeatMap(
        "Levels given, per level labelled",
        "Numbers are answers; the colour is the share of their row.",
        "label ↓ score →",
        _LEVEL_NAMES,
        rows,
    )


def _criteria(labels: Sequence[Grading]) -> HeatMap:
    """Lay out the mean per criterion (row) and label level (column)."""
    values: dict[str, list[list[float]]] = {}
    for grading in labels:
        level = round(grading.case.label * (LEVELS - 1))
        for name, value in (grading.verdict.criteria if grading.verdict else {}).items():
            values.setdefault(name, [[] for _ in range(LEVELS)])[level].append(value)
    means = {name: [sum(cell) / len(cell) if cell else None for cell in row] for name, row in values.items()}
    rows = [
        (_short(name), [None if mean is None else (mean, f"{mean:.2f}") for mean in row]) for name, row in means.items()
    ]
    return HeatMap(
        "Criteria by label",
        "Mean of each criterion over the answers of a level. Below 0 (red) it takes points away.",
        "criterion ↓ label →",
        _LEVEL_NAMES,
        rows,
    )


def _axis(low: float, high: float) -> Callable[[float], float]:
    """Return a function from a value to its place on an axis from `low` to `high`, in percent."""
    return lambda value: 100 * (min(max(value, low), high) - low) / (high - low)


def _short(name: str) -> str:
    return name.replace("_", " ")
