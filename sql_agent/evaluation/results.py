"""Gather the figures of finished evaluations, and of their comparison, and write them in all their forms."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from sql_agent.evaluation.compare import Comparison, check_comparable, compare
from sql_agent.evaluation.folder import About, EvaluationFolder, Key
from sql_agent.evaluation.markdown import markdown
from sql_agent.evaluation.measures import Price, SetResult, measure_set
from sql_agent.evaluation.page import render_page
from sql_agent.schemas import Record, RolloutRecord
from sql_agent.system.files import atomic_write
from sql_agent.tasks.task import load_task


class Evaluation(Record):
    """One model's figures by set. `asked` counts the questions by set, also those that have not been asked yet."""

    about: About
    asked: dict[str, int]
    sets: dict[str, SetResult]


class Report(Record):
    """What is written and shown: one evaluation or several, and each of the later ones against the first."""

    evaluations: tuple[Evaluation, ...]
    comparisons: tuple[Comparison, ...] = ()
    seed: int


Rollouts = Mapping[Key, RolloutRecord]


def measure(folder: EvaluationFolder, *, price: Price | None = None, seed: int = 0) -> Evaluation:
    """Measure the rollouts in `folder`; `price` is that of its model where it is known."""
    about, asked, records = folder.about(), folder.sets(), folder.records()
    words = load_task(about.settings["task"]).words
    sets = {name: [record for (of, _), record in records.items() if of == name] for name in asked}
    return Evaluation(
        about=about,
        asked={name: len(questions) for name, questions in asked.items()},
        sets={name: measure_set(of, words, price=price, seed=seed) for name, of in sets.items() if of},
    )


def report_on(
    evaluations: Sequence[Evaluation], rollouts: Sequence[Rollouts], *, compared: bool, seed: int = 0
) -> Report:
    """Put evaluations side by side; with `compared` each later one is tested against the first.

    Raises ConfigError and DataError for evaluations that cannot be compared.
    """
    comparisons = []
    if compared:
        check_comparable([evaluation.about for evaluation in evaluations])
        labels = unique_names([evaluation.about.model for evaluation in evaluations])
        comparisons = [
            compare(labels[0], rollouts[0], label, others, seed=seed)
            for label, others in zip(labels[1:], rollouts[1:], strict=True)
        ]
    return Report(evaluations=tuple(evaluations), comparisons=tuple(comparisons), seed=seed)


def write_results(folder: Path, report: Report, rollouts: Sequence[Rollouts]) -> dict[str, Path]:
    """Write `report` into `folder` as JSON, Markdown and HTML; returns the paths by suffix, without the dot."""
    labels = unique_names([evaluation.about.model for evaluation in report.evaluations])
    name = "comparison" if report.comparisons else "evaluation"
    texts = {
        "json": report.model_dump_json(indent=2) + "\n",
        "md": markdown(labels, report),
        "html": render_page(labels, report, rollouts),
    }
    paths = {}
    for suffix, text in texts.items():
        paths[suffix] = folder / f"{name}.{suffix}"
        with atomic_write(paths[suffix]) as unfinished:
            unfinished.write_text(text, encoding="utf-8")
    return paths


def unique_names(names: Sequence[str]) -> list[str]:
    """Return `names`, those that occur again with a number behind them."""
    seen: dict[str, int] = {}
    result = []
    for name in names:
        seen[name] = seen.get(name, 0) + 1
        result.append(name if seen[name] == 1 else f"{name} ({seen[name]})")
    return result
