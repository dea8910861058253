"""Lay out the first and the last validation of a run as a table, its sets of questions side by side."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

Row = Mapping[str, Any]  # a line of validation.jsonl

_FIGURES = {
    "questions": "questions",
    "reward/mean": "reward (0–1.1)",
    "accurate": "accurate answers (judge >= 0.8)",
    "agent/sql_ok": "with a successful query",
    "refused_answerable": "answerable, but refused",
    "right_refusals": "unanswerable, and refused",
}
_KINDS = "accurate/"


@dataclass(frozen=True)
class ValidationTable:
    """Holds the texts of a table: a heading for each column, and rows of a label and a figure for each column.

    `kinds` are the shares of accurate answers for each kind of question. A figure that was not measured is "–".
    """

    columns: list[str]
    figures: list[tuple[str, list[str]]]
    kinds: list[tuple[str, list[str]]]


def validation_sets(validations: Sequence[Row]) -> list[str]:
    """Return the names of the sets that were validated on, in the order of the first line."""
    keys = dict.fromkeys(key for row in validations for key in row)
    return [key.split("/")[1] for key in keys if key.startswith("val/") and key.endswith("/questions")]


def kinds_of(validations: Sequence[Row], name: str) -> list[str]:
    """Return the kinds of question in the set `name`, in alphabetical order."""
    prefix = f"val/{name}/{_KINDS}"
    return sorted({key.removeprefix(prefix) for row in validations for key in row if key.startswith(prefix)})


def validation_table(validations: Sequence[Row]) -> ValidationTable:
    """Lay out the first and the last of `validations` for each set; a single validation gives one column a set."""
    sets = validation_sets(validations)
    ends = [validations[0], validations[-1]][: len(validations)] if validations else []
    shown = [(name, row) for name in sets for row in ends]

    def texts(key: str) -> list[str]:
        return [_text(row.get(f"val/{name}/{key}")) for name, row in shown]

    measured = {key for name in sets for row in ends for key in _FIGURES if f"val/{name}/{key}" in row}
    kinds = sorted({kind for name in sets for kind in kinds_of(validations, name)})
    return ValidationTable(
        columns=[f"{name}, step {row['step']}" for name, row in shown],
        figures=[(label, texts(key)) for key, label in _FIGURES.items() if key in measured],
        kinds=[(f"accurate: {kind.replace('_', ' ')}", texts(_KINDS + kind)) for kind in kinds],
    )


def _text(value: float | None) -> str:
    if value is None:
        return "–"
    return str(value) if isinstance(value, int) else f"{value:.3f}"
