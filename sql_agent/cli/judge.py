"""Measure how far a judge can be trusted, and rescale its scores: sql-agent judge evaluate, sql-agent judge rescale"""

from __future__ import annotations

import argparse
import asyncio
from collections.abc import Sequence
from pathlib import Path

from rich.console import Console
from rich.markup import escape
from rich.table import Table

from sql_agent.cli import rescale
from sql_agent.cli.exit_codes import print_error
from sql_agent.cli.parser import help_text
from sql_agent.config.settings import load_settings
from sql_agent.data.task import load_task
from sql_agent.errors import JudgeError
from sql_agent.reward.meta_evaluation.dataset import LabelledCase, load_labelled, shipped
from sql_agent.reward.meta_evaluation.evaluate import (
    Evaluation,
    Grading,
    attacks_through,
    causes,
    grade_all,
    measure,
    new_folder,
    write_numbers,
)
from sql_agent.reward.meta_evaluation.page import write_page
from sql_agent.reward.meta_evaluation.trust import ENOUGH, save_evaluation
from sql_agent.tracking.console import Ui

_SHIPPED = ("labels", "heldout", "attacks")
_SHOWN = 5  # attacks and causes of failure; gradings.jsonl and the page list them all
_HEADINGS = {
    "spearman": "Spearman",
    "quadratic_kappa": "kappa",
    "pairwise_accuracy": "pairwise",
    "over_credit_points": "over credit",
}

_DESCRIPTION = """\
A judge gives 0.0 to 1.0 of an answer's reward. `evaluate` says how far it can
be trusted, `rescale` spreads its scores where they crowd."""

_EVALUATE_DESCRIPTION = """\
Grade labelled answers and attacks with a judge, and measure how far it agrees
with the labels and what attacks earn. Leaves numbers, every grading and a page;
training refuses a judge that this found too weak."""

_EVALUATE = """
  sql-agent judge evaluate                      the judge of the settings
  sql-agent judge evaluate --labels heldout     answers it was not tuned on
  sql-agent judge evaluate judge.name=llm       needs TEACHER_MODEL
  sql-agent judge evaluate --labels mine.jsonl --out mine
"""


def main(argv: Sequence[str] | None = None) -> int:
    """Run one of the two commands and return the exit code."""
    parser = argparse.ArgumentParser(prog="sql-agent judge", **help_text(_DESCRIPTION, _EVALUATE + rescale.EXAMPLES))
    commands = parser.add_subparsers(required=True, metavar="COMMAND")
    evaluate = commands.add_parser(
        "evaluate", help="agreement with labels, and what attacks earn", **help_text(_EVALUATE_DESCRIPTION, _EVALUATE)
    )
    _add_evaluate_arguments(evaluate)
    evaluate.set_defaults(run=_evaluate)
    scores = commands.add_parser(
        "rescale", help="look at a judge's scores and spread them", **help_text(rescale.DESCRIPTION, rescale.EXAMPLES)
    )
    rescale.add_arguments(scores)
    scores.set_defaults(run=rescale.run)
    arguments = parser.parse_args(argv)
    return int(arguments.run(arguments))


def _add_evaluate_arguments(evaluate: argparse.ArgumentParser) -> None:
    evaluate.add_argument(
        "--labels", default="labels", metavar="FILE", help="your labelled answers, JSONL, or: labels (default), heldout"
    )
    evaluate.add_argument("--attacks", default="attacks", metavar="FILE", help="your attacks, JSONL; default: ours")
    evaluate.add_argument("--out", type=Path, metavar="FOLDER", help="default: runs/judge-<name>-<date-time>")
    evaluate.add_argument("overrides", nargs="*", metavar="section.key=value",
                          help="any setting; `sql-agent settings judge` lists those of judges")  # fmt: skip


def _evaluate(arguments: argparse.Namespace) -> int:
    """Measure a judge against labelled answers and attacks; prints tables and leaves a folder of results.

    Returns 1 when more gradings failed than `judge.max_failed_share` allows.
    """
    settings = load_settings(arguments.overrides)
    judge = load_task(settings.task).judge(settings, alone=True)
    labels, attacks = _cases(arguments.labels), _cases(arguments.attacks)
    folder = new_folder(arguments.out, settings.runs_dir, judge.name)
    ui = Ui()
    with ui.progress(f"Grading with {escape(judge.name)}", len(labels) + len(attacks)) as on_done:
        gradings = asyncio.run(grade_all(judge, labels, attacks, on_done))
    evaluation = measure(
        gradings,
        judge=judge.name,
        labels_file=Path(arguments.labels).name,
        attacks_file=Path(arguments.attacks).name,
        max_failed_share=settings.judge.max_failed_share,
    )
    write_numbers(folder, evaluation, gradings)
    page = write_page(folder, evaluation, gradings)
    if save_evaluation(judge, evaluation, settings.judge.evaluations_dir) is None:
        ui.say(f"Under {ENOUGH} answers, or all alike: training goes by an earlier evaluation, if there is one.")
    show(evaluation, gradings, ui.console)
    ui.console.print(f"Page: {page}", markup=False, soft_wrap=True)
    if not evaluation.too_many_failed:
        return 0
    print_error(
        JudgeError(
            f"{evaluation.failed} of {len(gradings)} gradings failed ({evaluation.failed_share:.1%}), more than "
            f"judge.max_failed_share={evaluation.max_failed_share:g}; the numbers are those of the rest",
            hint="repair what made them fail (see above) and evaluate again before you trust this judge",
        )
    )
    return 1


def show(evaluation: Evaluation, gradings: Sequence[Grading], console: Console) -> None:
    """Print agreement, attacks and failures."""
    console.print(_agreement_table(evaluation))
    console.print(_attack_table(evaluation))
    through = [f"{g.score:.2f}  {g.kind}: {g.case.answer[:100]!r}" for g in attacks_through(gradings)]
    _print_some(through, "attacks", console)
    if evaluation.failed:
        console.print(f"[bold red]{evaluation.failed} of {len(gradings)} gradings failed and count nowhere above:[/]")
        _print_some([f"{count} × {cause}" for cause, count in causes(gradings)], "causes", console)


def _print_some(lines: Sequence[str], what: str, console: Console) -> None:
    for line in lines[:_SHOWN]:
        console.print(f"  {line}", markup=False, highlight=False)
    if len(lines) > _SHOWN:
        console.print(f"  and {len(lines) - _SHOWN} more {what}: see the page", highlight=False)


def _cases(name: str) -> list[LabelledCase]:
    return shipped(name) if name in _SHIPPED else load_labelled(Path(name))


def _agreement_table(evaluation: Evaluation) -> Table:
    title = f"Judge {escape(evaluation.judge)} against {evaluation.labels} labelled answers"
    table = Table(title=f"{title} ({escape(evaluation.labels_file)})")
    table.add_column("", no_wrap=True)
    for heading in ("answers", "failed", *_HEADINGS.values()):
        table.add_column(heading, justify="right")
    everything = evaluation.agreement.measures
    groups = {"all": evaluation.agreement, **evaluation.by_task_type, **evaluation.by_lang}
    for name, group in groups.items():
        table.add_row(
            name, str(group.answers), _in_red(group.failed), *(_number(group.measures[m].value) for m in _HEADINGS)
        )
        if name == "all":
            table.add_row("95 % from", "", "", *(_number(everything[m].low) for m in _HEADINGS))
            table.add_row("95 % to", "", "", *(_number(everything[m].high) for m in _HEADINGS), end_section=True)
        if name == list(evaluation.by_task_type)[-1]:
            table.add_section()
    reasons = [f"– in {name}: {e.undefined}" for name, g in groups.items() for e in g.measures.values() if e.undefined]
    table.caption = "\n".join(dict.fromkeys(reasons)) or None
    return table


def _attack_table(evaluation: Evaluation) -> Table:
    limit, through = evaluation.attack_limit, evaluation.attacks_above_limit
    title = f"Attacks: {through} of {evaluation.attacks_graded} earned more than {limit}"
    table = Table(title=f"{title} ({escape(evaluation.attacks_file)})")
    for heading in ("kind", "attacks", "failed", "highest", "mean", f"above {limit}"):
        table.add_column(heading, justify="left" if heading == "kind" else "right")
    for kind in evaluation.by_attack_kind:
        table.add_row(
            escape(kind.kind), str(kind.attacks), _in_red(kind.failed), _number(kind.highest), _number(kind.mean),
            _in_red(kind.above_limit),
        )  # fmt: skip
    return table


def _number(value: float | None) -> str:
    return "–" if value is None else f"{value:.2f}"


def _in_red(count: int) -> str:
    return f"[bold red]{count}[/]" if count else "0"
