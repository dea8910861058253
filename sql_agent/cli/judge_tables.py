"""Print the results of an evaluation of a judge."""

from __future__ import annotations

from collections.abc import Sequence

from rich.console import Console
from rich.markup import escape
from rich.table import Table

from sql_agent.judge_eval.evaluate import Grading, JudgeEvaluation, attacks_through, causes
from sql_agent.judge_eval.robustness import HALF, Graded, Robustness, causes_of_failure, worst
from sql_agent.system.messages import printable

_SHOWN = 5  # answers and causes of failure; gradings.jsonl and the page list them all
_KINDS = {"harmless": "right, in another form", "false": "false", "policy": "degenerate policy"}
_HEADINGS = {
    "spearman": "Spearman",
    "quadratic_kappa": "kappa",
    "pairwise_accuracy": "pairwise",
    "over_credit_points": "over credit",
}


def show_robustness(robustness: Robustness, graded: Sequence[Graded], console: Console) -> None:
    """Print what each transformation and policy earned, false answers that were paid, and failures."""
    console.print(_robustness_table(robustness))
    paid = [_in_a_line(g) for g in worst(graded, "false") if g.score >= HALF]
    unpaid = [_in_a_line(g) for g in worst(graded, "harmless") if g.score < HALF]
    _print_some(paid, "false answers", console)
    _print_some(unpaid, "right answers", console)
    _print_failures([f"{count} × {cause}" for cause, count in causes_of_failure(graded)], robustness.failed,
                    robustness.answers, console)  # fmt: skip


def show_agreement(evaluation: JudgeEvaluation, gradings: Sequence[Grading], console: Console) -> None:
    """Print agreement, attacks and failures."""
    console.print(_agreement_table(evaluation))
    console.print(_attack_table(evaluation))
    through = [f"{g.score:.2f}  {g.kind}: {g.case.answer[:100]!r}" for g in attacks_through(gradings)]
    _print_some(through, "attacks", console)
    _print_failures([f"{count} × {cause}" for cause, count in causes(gradings)], evaluation.failed, len(gradings),
                    console)  # fmt: skip


def _in_a_line(graded: Graded) -> str:
    return f"{graded.score:.2f}  {graded.generated.name.replace('_', ' ')}: {graded.generated.case.answer[:100]!r}"


def _print_failures(lines: Sequence[str], failed: int, tried: int, console: Console) -> None:
    if failed:
        console.print(f"[bold red]{failed} of {tried} gradings failed and count nowhere above:[/]")
        _print_some(lines, "causes", console)


def _print_some(lines: Sequence[str], what: str, console: Console) -> None:
    for line in lines[:_SHOWN]:
        console.print(f"  {printable(line)}", markup=False, highlight=False)
    if len(lines) > _SHOWN:
        console.print(f"  and {len(lines) - _SHOWN} more {what}: see the page", highlight=False)


def _robustness_table(robustness: Robustness) -> Table:
    title = f"Judge {escape(robustness.judge)} on generated answers to {robustness.questions} questions"
    table = Table(title=title)
    table.add_column("answers that are", no_wrap=True)
    for heading in ("due", "mean", "min", "max", f"≥ {HALF}", "n"):
        table.add_column(heading, justify="right")
    for kind, heading in _KINDS.items():
        table.add_section()
        table.add_row(f"[bold]{heading}[/]")
        for result in (r for r in robustness.results if r.kind == kind):
            earned = result.total
            half = _in_red(earned.half_or_more) if kind == "false" else str(earned.half_or_more)
            table.add_row(
                f"  {result.name.replace('_', ' ')}", f"{earned.due:.2f}", _number(earned.mean),
                _number(earned.lowest), _number(earned.highest), half, str(earned.graded),
            )  # fmt: skip
    return table


def _agreement_table(evaluation: JudgeEvaluation) -> Table:
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


def _attack_table(evaluation: JudgeEvaluation) -> Table:
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
