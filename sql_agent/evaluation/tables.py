"""Lay out the figures of evaluations as tables of text, for the terminal, Markdown and the page."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from sql_agent.evaluation.compare import Comparison
from sql_agent.evaluation.measures import MEASURES, PERCENTILES, Figure, Group, SetResult
from sql_agent.evaluation.statistics import PairedDifference

_UNKNOWN = "–"
# The sections of a table below its first lines.
_ANSWERS = (
    "accurate", "reward/judge", "reward/mean", "agent/sql_ok", "agent/grounded", "refused_answerable",
    "right_refusals", "agent/recovered", "agent/answered",
)  # fmt: skip
_WORK = (
    "agent/tool_calls", "agent/turns", "agent/prompt_tokens", "agent/completion_tokens", "agent/seconds",
    "agent/seconds_p50", "agent/seconds_p95", "agent/cost_usd",
)  # fmt: skip

Row = tuple[str, list[str]]


@dataclass(frozen=True)
class TextTable:
    """Holds a heading for each column, and sections of rows: a label, and a text for each column."""

    title: str
    columns: list[str]
    sections: list[list[Row]]


def figure_tables(results: Mapping[str, Mapping[str, SetResult]]) -> list[TextTable]:
    """Lay out the results of models by set: one model's sets side by side, or for each set the models."""
    if len(results) == 1:
        ((model, sets),) = results.items()
        return [_table(model, sets)]
    names = dict.fromkeys(name for sets in results.values() for name in sets)
    return [_table(name, {model: sets[name] for model, sets in results.items() if name in sets}) for name in names]


def _table(title: str, results: Mapping[str, SetResult]) -> TextTable:
    groups = [result.all for result in results.values()]
    types = sorted({name for result in results.values() for name in result.by_task_type})
    langs = sorted({name for result in results.values() for name in result.by_language})
    sections = [
        [("questions graded", [str(group.questions) for group in groups])],
        _rows(_ANSWERS, groups),
        _rows(_WORK, groups),
        [
            (f"accurate: {name.replace('_', ' ')}", [_accurate(r.by_task_type.get(name)) for r in results.values()])
            for name in types
        ],
    ]
    if any(group.dropped for group in groups):
        sections[0].append(("dropped", [str(group.dropped) for group in groups]))
    if len(langs) > 1:
        sections.append(
            [(f"accurate: {name}", [_accurate(r.by_language.get(name)) for r in results.values()]) for name in langs]
        )
    databases = sorted({name for result in results.values() for name in result.by_database})
    if len(databases) > 1:
        sections.append(
            [(f"accurate: {n}", [_accurate(r.by_database.get(n)) for r in results.values()]) for n in databases]
        )
    return TextTable(title, list(results), [section for section in sections if section])


def comparison_table(comparison: Comparison) -> TextTable:
    """Lay out the tests of a model against the baseline, its sets side by side."""
    tests = list(comparison.sets.values())
    rows: list[Row] = [
        ("questions of both", [str(test.questions) for test in tests]),
        (
            "accurate, baseline → model",
            [f"{100 * test.accurate[0]:.1f} → {100 * test.accurate[1]:.1f} %" for test in tests],
        ),
        ("  difference, points", [_difference(test.accuracy, 100, 1) for test in tests]),
        ("became right", [str(test.gained) for test in tests]),
        ("became wrong", [str(test.lost) for test in tests]),
        ("McNemar's exact p", [p_text(test.p) for test in tests]),
        ("judge score, difference", [_difference(test.score, 1, 3) for test in tests]),
        ("  paired bootstrap p", [p_text(test.score.p) for test in tests]),
    ]
    return TextTable(f"{comparison.model} against {comparison.baseline}", list(comparison.sets), [rows])


def figure_text(name: str, figure: Figure) -> str:
    """Return a figure with its interval, such as "81.2 % [78.0, 84.1]"; a share is in percent."""
    unit = MEASURES[name].unit if name in MEASURES else "seconds"
    factor, digits = {"share": (100, 1), "number": (1, _digits(figure.value)), "seconds": (1, 2), "dollars": (1, 5)}[
        unit
    ]
    value = f"{factor * figure.value:.{digits}f}{' %' if unit == 'share' else ''}"
    if figure.low is None or figure.high is None:
        return value
    return f"{value} [{factor * figure.low:.{digits}f}, {factor * figure.high:.{digits}f}]"


def p_text(p: float) -> str:
    """Return a p-value with two significant digits."""
    return "< 0.001" if p < 0.001 else f"{p:.2g}"


def _rows(names: Sequence[str], groups: Sequence[Group]) -> list[Row]:
    labels = {name: measure.label for name, measure in MEASURES.items()} | {n: of[0] for n, of in PERCENTILES.items()}
    return [
        (labels[name], [_text(name, group) for group in groups])
        for name in names
        if any(name in group.figures for group in groups)
    ]


def _text(name: str, group: Group) -> str:
    figure = group.figures.get(name)
    return _UNKNOWN if figure is None else figure_text(name, figure)


def _accurate(group: Group | None) -> str:
    return _UNKNOWN if group is None else _text("accurate", group)


def _difference(difference: PairedDifference, factor: int, digits: int) -> str:
    low, mean, high = (factor * value for value in (difference.low, difference.mean, difference.high))
    return f"{mean:+.{digits}f} [{low:+.{digits}f}, {high:+.{digits}f}]"


def _digits(value: float) -> int:
    return 3 if value < 2 else 2 if value < 100 else 0
