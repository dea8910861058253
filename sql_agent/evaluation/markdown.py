"""Write evaluations as Markdown tables, to be pasted into an issue or a page."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from sql_agent.evaluation.compare import Comparison
from sql_agent.evaluation.tables import TextTable, comparison_table, figure_tables

if TYPE_CHECKING:
    from sql_agent.evaluation.results import Report

_FLIPS_SHOWN = 20


def markdown(labels: Sequence[str], report: Report) -> str:
    """Return the tables of `report`; `labels` name its evaluations."""
    results = {label: evaluation.sets for label, evaluation in zip(labels, report.evaluations, strict=True)}
    parts = [_table(table) for table in (*map(comparison_table, report.comparisons), *figure_tables(results))]
    for comparison in report.comparisons:
        parts += _flips(comparison)
    judges = dict.fromkeys(evaluation.about.judge for evaluation in report.evaluations)
    parts.append(f"In brackets: 95 % bootstrap intervals. Judge: {', '.join(judges)}.")
    return "\n\n".join(parts) + "\n"


def _table(table: TextTable) -> str:
    lines = [f"| {_cell(table.title)} | {' | '.join(map(_cell, table.columns))} |"]
    lines.append(f"| --- |{' ---: |' * len(table.columns)}")
    for section in table.sections:
        lines += [f"| {_cell(label.strip())} | {' | '.join(map(_cell, texts))} |" for label, texts in section]
    return "\n".join(lines)


def _flips(comparison: Comparison) -> list[str]:
    parts = []
    for name, test in comparison.sets.items():
        for became, gained in (("right", True), ("wrong", False)):
            found = [flip for flip in test.flips if flip.gained is gained]
            lines = [f"- `{_cell(flip.id)}` {_cell(flip.question)}" for flip in found[:_FLIPS_SHOWN]]
            if len(found) > _FLIPS_SHOWN:
                lines.append(f"- and {len(found) - _FLIPS_SHOWN} more, in comparison.json")
            if lines:
                parts.append(f"Became {became}, {name}:\n\n" + "\n".join(lines))
    return parts


def _cell(text: str) -> str:
    """Return `text` on one line, without what would end a cell."""
    return " ".join(text.split()).replace("|", "\\|")
