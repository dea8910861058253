"""Draw what a judge pays for generated answers: one HTML page that works offline."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from sql_agent.judge_eval.evaluate import ATTACK_LIMIT
from sql_agent.judge_eval.generation import Kind
from sql_agent.judge_eval.html import write_html
from sql_agent.judge_eval.robustness import (
    HALF,
    NOTABLE,
    Graded,
    Robustness,
    causes_of_failure,
    worst,
)

_WORST = 3  # answers shown of each transformation or policy
_KINDS: tuple[tuple[Kind, str, str], ...] = (
    (
        "harmless",
        "Right answers in other forms",
        "A judge that pays less for one of these trains a form.",
    ),
    ("false", "False answers", "A judge that pays for one of these trains it."),
    ("policy", "Degenerate policies", "What a model would earn that answers every question in the same way."),
)


def write_robustness_page(folder: Path, robustness: Robustness, graded: Sequence[Graded], disclaimer: str) -> Path:
    """Write `report.html`, which begins with `disclaimer`, into `folder` and return its path."""
    langs = sorted({lang for result in robustness.results for lang in result.by_lang})
    task_types = sorted({task_type for result in robustness.results for task_type in result.by_task_type})
    return write_html(
        folder,
        "robustness.html.j2",
        date=robustness.date,
        disclaimer=disclaimer,
        e=robustness,
        verdict=robustness_in_words(robustness),
        kinds=_KINDS,
        half=HALF,
        limit=ATTACK_LIMIT,
        notable=NOTABLE,
        langs=langs,
        task_types=task_types,
        worst=[
            ("False answers that earned most", worst(graded, "false", of_each=_WORST)),
            ("Right answers that earned least", worst(graded, "harmless", of_each=_WORST)),
            ("Policies furthest from what is due", worst(graded, "policy", of_each=_WORST)),
        ],
        causes=causes_of_failure(graded),
    )


def robustness_in_words(robustness: Robustness) -> list[str]:
    """Say in sentences what the numbers mean: right answers, false ones, policies."""
    said = []
    if robustness.too_many_failed:
        said.append("Too many gradings failed for a verdict; what follows is of the rest.")
    harmless = [result.total for result in robustness.of_kind("harmless")]
    full, right = sum(earned.full for earned in harmless), sum(earned.graded for earned in harmless)
    if right:
        said.append(f"{full} of {right} right answers ({full / right:.1%}) earn 1.0, whatever their form.")
    false = robustness.worst_false
    if false is not None and false.total.mean is not None:
        paid = sum(result.total.half_or_more for result in robustness.of_kind("false"))
        said.append(
            f"Of false answers, the kind “{false.name.replace('_', ' ')}” earns most: {false.total.mean:.2f} in the "
            f"mean; {paid or 'none'} of all false answers {'earn' if paid != 1 else 'earns'} {HALF} or more."
        )
    policies = [result for result in robustness.of_kind("policy") if result.total.mean is not None]
    if policies:
        best = max(policies, key=lambda result: result.total.mean or 0.0)
        said.append(
            f"Of degenerate policies, “{best.name.replace('_', ' ')}” earns most: {best.total.mean:.2f}, "
            f"and {best.total.due:.2f} is due."
        )
    return said or ["No answer was graded."]
