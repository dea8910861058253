"""Draw evaluations as one HTML page that works offline: the tables, the tests and every rollout."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from sql_agent.evaluation.tables import TextTable, comparison_table, figure_tables
from sql_agent.runs.page import render_page as render
from sql_agent.runs.rollout_pack import RolloutPack
from sql_agent.schemas import RolloutRecord
from sql_agent.tasks.task import load_task

if TYPE_CHECKING:
    from sql_agent.evaluation.folder import Key
    from sql_agent.evaluation.results import Evaluation, Report, Rollouts


def render_page(labels: Sequence[str], report: Report, rollouts: Sequence[Rollouts]) -> str:
    """Return the page of `report`; `labels` name its evaluations, whose records are `rollouts`."""
    packs = [_pack(records) for records in rollouts]
    page = {
        "title": "Evaluation " + " · ".join(labels),
        "disclaimer": load_task(report.evaluations[0].about.settings["task"]).disclaimer,
        "tables": list(_tables(labels, report)),
        "runs": [
            {"name": label, "facts": _facts(evaluation), "charts": [], "config": evaluation.about.settings}
            | pack.index()
            for label, evaluation, pack in zip(labels, report.evaluations, packs, strict=True)
        ],
    }
    return render(page, [pack.blocks() for pack in packs])


def _pack(records: Mapping[Key, RolloutRecord]) -> RolloutPack:
    pack = RolloutPack()
    for (name, number), record in records.items():
        dumped = record.model_dump(mode="json")
        where = {"step": 0, "mode": "eval", "val_set": name, "group": number, "rollout_id": None}
        pack.add({**where, "dropped": dumped["dropped"], "record": dumped})
    return pack


def _tables(labels: Sequence[str], report: Report) -> Iterable[dict[str, Any]]:
    for comparison in report.comparisons:
        unpaired = f"{comparison.unpaired} questions were not graded with both, and are left out."
        yield _laid_out(comparison_table(comparison), unpaired if comparison.unpaired else "")
    results = {label: evaluation.sets for label, evaluation in zip(labels, report.evaluations, strict=True)}
    for table in figure_tables(results):
        yield _laid_out(table, f"In brackets: 95 % bootstrap intervals, seed {report.seed}.")


def _laid_out(table: TextTable, note: str) -> dict[str, Any]:
    return {"title": table.title, "columns": table.columns, "sections": table.sections, "note": note}


def _facts(evaluation: Evaluation) -> list[tuple[str, str]]:
    about = evaluation.about
    known = {
        "Model": about.model,
        "Address": about.base_url,
        "Trained in": about.run,
        "Questions": ", ".join(f"{count} {name}" for name, count in evaluation.asked.items()),
        "Judge": about.judge,
        "Started": about.started,
        "Version": about.version,
    }
    return [(name, text) for name, text in known.items() if text]
