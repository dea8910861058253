"""Draw an evaluation of a judge: one HTML page that works offline."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape
from pathlib import Path
from typing import Any

import numpy as np
import plotly.graph_objects as go
from plotly.io import to_html
from plotly.offline import get_plotlyjs

from sql_agent.reward.meta_evaluation.agreement import LEVELS, MEASURES, Estimate, confusion
from sql_agent.reward.meta_evaluation.evaluate import (
    Evaluation,
    Grading,
    attacks_through,
    failures,
    graded,
    scores_and_labels,
)
from sql_agent.reward.meta_evaluation.html import write_html

_WORST = 15
_GOOD, _FAIR = 0.75, 0.4  # of kappa: Fleiss 1981, Statistical Methods for Rates and Proportions, 2nd edition
_LEVEL_NAMES = [f"{level / (LEVELS - 1):g}" for level in range(LEVELS)]
_JITTER = 0.045
_LONGEST_NAME = 26  # characters beside an axis
# Okabe and Ito's set, which people with colour blindness can distinguish; a name has one colour in every figure.
_BLUE, _ORANGE, _RED, _GREY = "#0072B2", "#E69F00", "#D55E00", "#999999"
_RED_TO_BLUE = [[0, _RED], [0.5, "#ffffff"], [1, _BLUE]]  # from -1 to 1

Figure = tuple[str, str, str]  # title, how to read it, HTML


def write_page(folder: Path, evaluation: Evaluation, gradings: Sequence[Grading], disclaimer: str) -> Path:
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
        figures=_figures(evaluation, gradings),
        plotly=get_plotlyjs(),
        worst=sorted((g for g in labels if _gap(g)), key=_gap, reverse=True)[:_WORST],
        through=attacks_through(gradings),
        failed=failures(gradings),
    )


def verdict(evaluation: Evaluation) -> list[str]:
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


def _attacks_in_words(evaluation: Evaluation) -> str:
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


def _figures(evaluation: Evaluation, gradings: Sequence[Grading]) -> list[Figure]:
    labels = graded(gradings, "labels")
    drawn: list[tuple[str, str, go.Figure]] = []
    if labels:
        drawn += [
            ("Label and score", "A dot is an answer, moved a little sideways so that dots do not hide each other.",
             _label_and_score(labels)),
            ("Over-credit by task type", "Right of 0 the judge gives more than the label. Bars: 95 % interval.",
             _over_credit(evaluation)),
            ("Levels given, per level labelled", "Numbers are answers; the colour is the share of their row.",
             _confusion(labels)),
        ]  # fmt: skip
    if any(g.verdict and g.verdict.criteria for g in labels):
        how = "Mean of each criterion over the answers of a level. Below 0 (red) it takes points away."
        drawn.append(("Criteria by label", how, _criteria(labels)))
    if graded(gradings, "attacks"):
        how = f"An attack above the line at {evaluation.attack_limit} got through."
        drawn.append(("Attacks by kind", how, _attacks(evaluation)))
    return [(title, how, _html(figure)) for title, how, figure in drawn]


def _label_and_score(labels: Sequence[Grading]) -> go.Figure:
    scores, given = scores_and_labels(labels)
    moved = given + np.random.default_rng(0).uniform(-_JITTER, _JITTER, len(given))
    figure = go.Figure(layout=_layout("label", "score"))
    figure.add_scatter(
        x=[0, 1], y=[0, 1], name="ideal", mode="lines", line={"color": _GREY, "dash": "dash"}, hoverinfo="skip"
    )
    figure.add_scatter(
        x=moved, y=scores, name="answer", mode="markers", marker={"color": _BLUE, "opacity": 0.4, "size": 7},
        text=[escape(f"{g.case.question.id} ({g.kind})") for g in labels], hovertemplate="%{text}: %{y:.2f}",
    )  # fmt: skip
    levels = np.unique(given)
    figure.add_scatter(
        x=levels, y=[scores[given == level].mean() for level in levels], name="mean of a label", mode="markers",
        marker={"color": _ORANGE, "size": 12, "symbol": "diamond", "line": {"color": "#000000", "width": 1}},
    )  # fmt: skip
    return figure.update_xaxes(range=[-0.08, 1.08], dtick=0.25).update_yaxes(range=[-0.05, 1.05], dtick=0.25)


def _over_credit(evaluation: Evaluation) -> go.Figure:
    groups = {"all": evaluation.agreement, **evaluation.by_task_type}
    rows = {name: group.measures["over_credit_points"] for name, group in groups.items() if group.answers}
    figure = go.Figure(layout=_layout("over-credit (points of 100)", "", rows=len(rows)))
    values, lows, highs = (np.array([getattr(e, key) for e in rows.values()]) for key in ("value", "low", "high"))
    figure.add_scatter(
        x=values, y=[name.replace("_", " ") for name in rows], mode="markers", showlegend=False,
        marker={"size": 10, "color": [_ORANGE if name == "all" else _BLUE for name in rows]},
        error_x={"array": highs - values, "arrayminus": values - lows, "color": _GREY, "thickness": 2},
        hovertemplate="%{x:+.1f}<extra></extra>",
    )  # fmt: skip
    return figure.add_vline(x=0, line_color=_GREY, line_dash="dash").update_yaxes(autorange="reversed", type="category")


def _confusion(labels: Sequence[Grading]) -> go.Figure:
    counts = confusion(*scores_and_labels(labels))
    shares = counts / np.maximum(counts.sum(1, keepdims=True), 1)
    return _heat_map(shares, counts.astype(int).tolist(), _LEVEL_NAMES, _LEVEL_NAMES, ("score", "label"))


def _criteria(labels: Sequence[Grading]) -> go.Figure:
    """Draw the mean per criterion (row) and label level (column); blank where no answer of a level has it."""
    values: dict[str, list[list[float]]] = {}
    for grading in labels:
        level = round(grading.case.label * (LEVELS - 1))
        for name, value in (grading.verdict.criteria if grading.verdict else {}).items():
            values.setdefault(name, [[] for _ in range(LEVELS)])[level].append(value)
    means = [[sum(cell) / len(cell) if cell else None for cell in row] for row in values.values()]
    texts = [["" if mean is None else f"{mean:.2f}" for mean in row] for row in means]
    return _heat_map(means, texts, _LEVEL_NAMES, [_short(name) for name in values], ("label", ""))


def _heat_map(
    colours: Any, texts: list[list[Any]], columns: Sequence[str], rows: Sequence[str], titles: tuple[str, str]
) -> go.Figure:
    figure = go.Figure(layout=_layout(*titles, rows=len(rows)))
    figure.add_heatmap(
        z=colours, text=texts, texttemplate="%{text}", x=columns, y=rows, colorscale=_RED_TO_BLUE, zmin=-1, zmax=1,
        showscale=False, xgap=2, ygap=2, hoverinfo="skip",
    )  # fmt: skip
    figure.update_xaxes(type="category", showgrid=False)
    return figure.update_yaxes(type="category", showgrid=False, autorange="reversed")


def _attacks(evaluation: Evaluation) -> go.Figure:
    kinds = [kind for kind in evaluation.by_attack_kind if kind.highest is not None]
    figure = go.Figure(layout=_layout("score", "", rows=len(kinds)))
    names = [f"{_short(kind.kind)} ({kind.attacks - kind.failed})" for kind in kinds]
    figure.add_scatter(
        x=[k.highest for k in kinds], y=names, name="highest", mode="markers",
        marker={"color": _RED, "size": 11, "symbol": "circle-open", "line": {"width": 2}},
    )  # fmt: skip
    figure.add_scatter(
        x=[k.mean for k in kinds], y=names, name="mean", mode="markers", marker={"color": _BLUE, "size": 7}
    )
    figure.add_vline(x=evaluation.attack_limit, line_color=_RED, line_dash="dash")
    return figure.update_xaxes(range=[-0.03, 1.04]).update_yaxes(autorange="reversed", type="category")


def _short(name: str) -> str:
    """Return a name from the data fit for an axis, because plotly would take markup in it for markup."""
    cut = name if len(name) <= _LONGEST_NAME else f"{name[: _LONGEST_NAME - 1]}…"
    return escape(cut.replace("_", " "))


def _layout(x: str, y: str, *, rows: int = 8) -> dict[str, Any]:
    """Return a layout with both axes titled, high enough for so many rows. The page sets the background."""
    axis = {"automargin": True, "zeroline": False, "fixedrange": True, "ticklabelstandoff": 8}
    return {
        "height": max(340, 110 + 26 * rows),
        "margin": {"l": 50, "r": 12, "t": 10, "b": 45},
        "template": "plotly_white",
        "paper_bgcolor": "rgba(0,0,0,0)",
        "plot_bgcolor": "rgba(0,0,0,0)",
        "xaxis": {**axis, "title": x},
        "yaxis": {**axis, "title": y},
        "legend": {"orientation": "h", "y": 1.02, "yanchor": "bottom"},
    }


def _html(figure: go.Figure) -> str:
    html: str = to_html(
        figure,
        full_html=False,
        include_plotlyjs=False,
        default_width="100%",
        config={"displayModeBar": False, "responsive": True},
    )
    return html
