"""Print the figures of evaluations, and what a comparison found."""

from __future__ import annotations

from collections.abc import Sequence

from rich import box
from rich.console import Console
from rich.table import Table
from rich.text import Text

from sql_agent.evaluation.compare import Comparison
from sql_agent.evaluation.results import Report
from sql_agent.evaluation.tables import TextTable, comparison_table, figure_tables
from sql_agent.runs.wrapping import wrap

_FLIPS_SHOWN = 3
_NARROW = 30  # columns of a heading


def show_report(labels: Sequence[str], report: Report, console: Console) -> None:
    """Print the tables of `report`, and examples of the questions that flipped; `labels` name its evaluations."""
    results = {label: evaluation.sets for label, evaluation in zip(labels, report.evaluations, strict=True)}
    for table in figure_tables(results):
        _print(table, console)
    for comparison in report.comparisons:
        _print(comparison_table(comparison), console)
        _print_flips(comparison, console)


def _print(table: TextTable, console: Console) -> None:
    drawn = Table(title=Text(table.title), title_justify="left", box=box.SIMPLE_HEAD, pad_edge=False, padding=(0, 1))
    drawn.add_column("")
    for column in table.columns:
        drawn.add_column(Text("\n".join(wrap(column, _NARROW))), justify="right")
    for section in table.sections:
        for label, texts in section:
            drawn.add_row(Text(label), *map(Text, texts))
        drawn.add_section()
    console.print(drawn)


def _print_flips(comparison: Comparison, console: Console) -> None:
    for name, test in comparison.sets.items():
        for became, gained in (("right", True), ("wrong", False)):
            found = [flip for flip in test.flips if flip.gained is gained]
            for flip in found[:_FLIPS_SHOWN]:
                for line in wrap(f"became {became}, {name}: {flip.question}", console.width - 2):
                    console.print(Text(line), soft_wrap=True)
            if len(found) > _FLIPS_SHOWN:
                console.print(f"  and {len(found) - _FLIPS_SHOWN} more became {became}", highlight=False)
