"""Draw evaluations as one HTML page that works offline: the tables, the tests and every rollout."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from jinja2 import Environment, PackageLoader
from markupsafe import Markup, escape

from sql_agent.data.task import load_task
from sql_agent.evaluation.measures import NO_TYPE
from sql_agent.evaluation.tables import comparison_table, figure_tables
from sql_agent.rl.metrics import is_accurate
from sql_agent.schemas import Cell, Question, RolloutRecord

if TYPE_CHECKING:
    from sql_agent.evaluation.results import Report, Rollouts

_ROWS_SHOWN = 8
_CELL_CHARS = 400


@dataclass(frozen=True)
class Entry:
    """A question of the page: the set that it is in, and its rollout with each model (None where there is none)."""

    name: str
    question: Question
    rollouts: list[RolloutRecord | None]

    @property
    def marks(self) -> list[str]:
        """How each model did: right, wrong, dropped or missing."""
        return [_mark(record) for record in self.rollouts]

    @property
    def kind(self) -> str:
        """What the page filters by: the mark of one model; of several both, both wrong, or which is better."""
        first, *others = self.marks
        if not others:
            return first
        if len(set(self.marks)) == 1:
            return f"all {first}"
        if first in {"right", "wrong"} and all(other in {"right", "wrong"} for other in others):
            return "became right" if first == "wrong" else "became wrong"
        return "not graded"


def render_page(labels: Sequence[str], report: Report, rollouts: Sequence[Rollouts]) -> str:
    """Return the page of `report`; `labels` name its evaluations, whose records are `rollouts`."""
    results = {label: evaluation.sets for label, evaluation in zip(labels, report.evaluations, strict=True)}
    entries = _entries(rollouts)
    environment = Environment(loader=PackageLoader("sql_agent.evaluation"), autoescape=True)
    environment.filters |= {"cell": _cell, "evidence": with_evidence}
    return environment.get_template("evaluation.html.j2").render(
        title=" · ".join(labels),
        labels=labels,
        report=report,
        tables=figure_tables(results),
        tests=[(comparison_table(comparison), comparison) for comparison in report.comparisons],
        disclaimer=load_task(report.evaluations[0].about.settings["task"]).disclaimer,
        entries=entries,
        choices={
            "set": sorted({entry.name for entry in entries}),
            "type": sorted({entry.question.task_type or NO_TYPE for entry in entries}),
            "lang": sorted({entry.question.lang for entry in entries}),
            "kind": sorted({entry.kind for entry in entries}),
        },
        rows_shown=_ROWS_SHOWN,
        no_type=NO_TYPE,
    )


def with_evidence(answer: str, question: Question) -> Markup:
    """Return `answer` with the reference facts and the evidence's quotes marked where it says them letter by letter."""
    texts = {question.answer, *(item.quote for item in question.evidence)}
    texts |= {part.strip() for text in list(texts) for part in text.replace("；", ";").split(";")}
    spans = sorted(
        (start, start + len(text)) for text in texts if text and (start := answer.casefold().find(text.casefold())) >= 0
    )
    parts, end = [], 0
    for start, stop in _merged(spans):
        parts += [escape(answer[end:start]), Markup("<mark>{}</mark>").format(answer[start:stop])]
        end = stop
    return Markup("").join([*parts, escape(answer[end:])])


def _merged(spans: Sequence[tuple[int, int]]) -> list[tuple[int, int]]:
    merged: list[tuple[int, int]] = []
    for start, stop in spans:
        if merged and start <= merged[-1][1]:
            merged[-1] = merged[-1][0], max(stop, merged[-1][1])
        else:
            merged.append((start, stop))
    return merged


def _entries(rollouts: Sequence[Rollouts]) -> list[Entry]:
    """Return the questions of all models in their order; those of the same set and id beside each other."""
    questions: Mapping[tuple[str, str], Question] = {
        key: record.question for records in reversed(rollouts) for key, record in records.items()
    }
    order = dict.fromkeys(key for records in rollouts for key in records)
    return [Entry(key[0], questions[key], [records.get(key) for records in rollouts]) for key in order]


def _mark(record: RolloutRecord | None) -> str:
    if record is None:
        return "missing"
    if record.reward is None:
        return "dropped"
    return "right" if is_accurate(record) else "wrong"


def _cell(cell: Cell) -> str:
    text = "NULL" if cell is None else str(cell)
    return text if len(text) <= _CELL_CHARS else f"{text[:_CELL_CHARS]} …"
