"""Answer as degenerate policies do, which understand nothing of a question and must not be worth learning."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from sql_agent.judge_eval.examples import Example, Reading
from sql_agent.schemas import QueryCall

# Takes a question and the refusal sentence of its language, if there is one; returns an answer and what was read.
Policy = Callable[[Example, str | None], tuple[str, Reading] | None]
_BETWEEN = "; "


def always_refuse(example: Example, refusal: str | None) -> tuple[str, Reading] | None:
    """Run the right query, and refuse every question."""
    return None if refusal is None else (refusal, example.gold)


def refuse_without_a_query(_: Example, refusal: str | None) -> tuple[str, Reading] | None:
    """Refuse every question and query nothing."""
    return None if refusal is None else (refusal, Reading())


def echo(example: Example, _: str | None) -> tuple[str, Reading]:
    """Run the right query, and repeat the question."""
    return example.question.question, example.gold


def dump_the_tables(example: Example, _: str | None) -> tuple[str, Reading]:
    """Read whole tables and give every cell."""
    return _BETWEEN.join(_cells(example.tables.calls)), example.tables


def dump_the_rows(example: Example, _: str | None) -> tuple[str, Reading]:
    """Read the right rows with every column and give every cell."""
    return _BETWEEN.join(_cells(example.rows.calls)), example.rows


def first_cell(example: Example, _: str | None) -> tuple[str, Reading]:
    """Read the right rows with every column and give the first cell."""
    return next(iter(_cells(example.rows.calls)), ""), example.rows


def longest_cell(example: Example, _: str | None) -> tuple[str, Reading]:
    """Read the right rows with every column and give the longest cell."""
    return max(_cells(example.rows.calls), key=len, default=""), example.rows


POLICIES: tuple[Policy, ...] = (
    always_refuse, refuse_without_a_query, echo, dump_the_tables, dump_the_rows, first_cell, longest_cell,
)  # fmt: skip


def _cells(calls: Sequence[QueryCall]) -> list[str]:
    return [str(cell) for call in calls for record in call.answer.records for cell in record if cell is not None]
