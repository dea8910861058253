"""Format the figures of evaluations as tables, and print tables on the terminal or as Markdown."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from rich.console import Console
from rich.text import Text

from sql_agent.evaluation.measures import (
    ANSWER_MEASURES,
    SAMPLE_MEASURES,
    WORK_MEASURES,
    Figure,
    Group,
    Measure,
    SetResult,
    reliability_measures,
)
from sql_agent.evaluation.statistics import Comparison, Flip, PairedDifference
from sql_agent.runs.console import TableRow, TextTable, wrap
from sql_agent.system.messages import first_of

_FLIPS_PRINTED, _FLIPS_IN_MARKDOWN = 3, 20


def figure_tables(results: Mapping[str, Mapping[str, SetResult]], seed: int) -> list[TextTable]:
    """Return for one model a table with a column for each question set; for several, a table for each question set."""
    note = f"In brackets: 95 % bootstrap intervals, seed {seed}."
    if len(results) == 1:
        ((model, sets),) = results.items()
        return [_table(model, sets, note)]
    names = dict.fromkeys(name for sets in results.values() for name in sets)
    return [
        _table(each, {model: sets[each] for model, sets in results.items() if each in sets}, note) for each in names
    ]


def _table(title: str, results: Mapping[str, SetResult], note: str) -> TextTable:
    groups = [result.all for result in results.values()]
    sections = [
        [("questions graded", [str(group.questions) for group in groups])],
        _rows(SAMPLE_MEASURES, groups),
        _rows(reliability_measures(0), groups),
        _rows(ANSWER_MEASURES, groups),
        _rows(WORK_MEASURES, groups),
        _accuracies([result.by_task_type for result in results.values()]),
    ]
    if any(group.dropped for group in groups):
        sections[0].append(("dropped", [str(group.dropped) for group in groups]))
    for parts in ([result.by_language for result in results.values()], [r.by_database for r in results.values()]):
        if len(rows := _accuracies(parts)) > 1:
            sections.append(rows)
    return TextTable(title, list(results), [section for section in sections if section], note)


def comparison_table(comparison: Comparison) -> TextTable:
    """Return the tests of a model against the baseline, with a column for each set."""
    tests = list(comparison.sets.values())
    rows: list[TableRow] = [
        ("questions of both", [str(test.questions) for test in tests]),
        (
            "accurate, baseline → model",
            [f"{100 * test.accurate[0]:.1f} → {100 * test.accurate[1]:.1f} %" for test in tests],
        ),
        ("  difference, points", [_difference(test.accuracy, 100, 1) for test in tests]),
        ("became right", [str(test.gained) for test in tests]),
        ("became wrong", [str(test.lost) for test in tests]),
        ("McNemar's exact p", [_p_text(test.p) for test in tests]),
        ("judge score, difference", [_difference(test.score, 1, 3) for test in tests]),
        ("  paired bootstrap p", [_p_text(test.score.p) for test in tests]),
    ]
    left_out = comparison.unpaired
    note = f"Left out: {left_out} questions without two comparable grades." if left_out else ""
    return TextTable(f"{comparison.model} against {comparison.baseline}", list(comparison.sets), [rows], note)


def _p_text(p: float) -> str:
    return "< 0.001" if p < 0.001 else f"{p:.2g}"


def _rows(measures: Mapping[str, Measure], groups: Sequence[Group]) -> list[TableRow]:
    return [
        (measure.label, [_text(group.figures.get(name), measure) for group in groups])
        for name, measure in measures.items()
        if measure.label and any(name in group.figures for group in groups)
    ]


def _accuracies(results: Sequence[Mapping[str, Group]]) -> list[TableRow]:
    """Return a row of accuracies for each group name, such as a task type."""
    rows = []
    for name in sorted({name for groups in results for name in groups}):
        figures = [groups[name].figures.get("accurate") if name in groups else None for groups in results]
        texts = [_text(figure, ANSWER_MEASURES["accurate"]) for figure in figures]
        rows.append((f"accurate: {name.replace('_', ' ')}", texts))
    return rows


def _text(figure: Figure | None, measure: Measure) -> str:
    """Return a figure with its interval, such as "81.2 % [78.0, 84.1]"; "–" for None."""
    if figure is None:
        return "–"
    size = abs(figure.value)
    of_number = 3 if size < 2 else 2 if size < 100 else 0
    factor = 100 if measure.unit == "share" else 1
    digits = {"share": 1, "number": of_number, "seconds": 2, "dollars": 5}[measure.unit]
    value = f"{factor * figure.value:.{digits}f}{' %' if measure.unit == 'share' else ''}"
    if figure.low is None or figure.high is None:
        return value
    return f"{value} [{factor * figure.low:.{digits}f}, {factor * figure.high:.{digits}f}]"


def _difference(difference: PairedDifference, factor: int, digits: int) -> str:
    low, mean, high = (factor * value for value in (difference.low, difference.mean, difference.high))
    return f"{mean:+.{digits}f} [{low:+.{digits}f}, {high:+.{digits}f}]"


def print_flips(comparison: Comparison, console: Console) -> None:
    """Print some of the questions that only one of the two models answered correctly."""
    for name, became, flips in _flips(comparison):
        said = (f"became {became}, {name}: {flip.question}" for flip in flips)
        for each in first_of(said, _FLIPS_PRINTED, f"more became {became}"):
            for line in wrap(each, console.width - 2):
                console.print(Text(line), soft_wrap=True)


def markdown(tables: Sequence[TextTable], comparisons: Sequence[Comparison], judges: Sequence[str]) -> str:
    """Return `tables` and the flips of `comparisons` as Markdown."""
    parts = [markdown_table(table) for table in tables]
    for comparison in comparisons:
        for name, became, flips in _flips(comparison):
            said = (f"`{_cell(flip.id)}` {_cell(flip.question)}" for flip in flips)
            lines = first_of(said, _FLIPS_IN_MARKDOWN, "more, in comparison.json")
            parts.append(f"Became {became}, {name}:\n\n" + "\n".join(f"- {line}" for line in lines))
    parts.append(f"In brackets: 95 % bootstrap intervals. Judge: {', '.join(dict.fromkeys(judges))}.")
    return "\n\n".join(parts) + "\n"


def _flips(comparison: Comparison) -> list[tuple[str, str, list[Flip]]]:
    return [
        (name, became, flips)
        for name, test in comparison.sets.items()
        for became, gained in (("right", True), ("wrong", False))
        if (flips := [flip for flip in test.flips if flip.gained is gained])
    ]


def markdown_table(table: TextTable) -> str:
    lines = [f"| {_cell(table.title)} | {' | '.join(map(_cell, table.columns))} |"]
    lines.append(f"| --- |{' ---: |' * len(table.columns)}")
    for section in table.sections:
        lines += [f"| {_cell(label.strip())} | {' | '.join(map(_cell, texts))} |" for label, texts in section]
    return "\n".join(lines)


def _cell(text: str) -> str:
    return " ".join(text.split()).replace("|", "\\|")
