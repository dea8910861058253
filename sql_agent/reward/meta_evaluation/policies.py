"""Degenerate policies: ways to answer that understand nothing of a question, and must not be worth learning."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from sql_agent.reward.meta_evaluation.examples import Example, Reading
from sql_agent.schemas import QueryCall

Policy = Callable[[Example, str], tuple[str, Reading]]  # the refusal sentence of the language -> an answer, and what it read
_BETWEEN = "; "


def always_refuse(example: Example, refusal: str) -> tuple[str, Reading]:
    """Run the right query, and refuse every question."""
    return refusal, example.gold


def refuse_without_a_query(_: Example, refusal: str) -> tuple[str, Reading]:
    """Refuse every question and query nothing."""
    return refusal, Reading()


def echo(example: Example, _: str) -> tuple[str, Reading]:
    """Run the right query, and repeat the question."""
    return example.question.question, example.gold


def dump_the_tables(example: Example, _: str) -> tuple[str, Reading]:
    """Read whole tables and give every cell."""
    return _BETWEEN.join(_cells(example.tables.calls)), example.tables


def dump_the_rows(example: Example, _: str) -> tuple[str, Reading]:
    """Read the right rows with every column and give every cell."""
    return _BETWEEN.join(_cells(example.rows.calls)), example.rows


def first_cell(example: Example, _: str) -> tuple[str, Reading]:
    """Read the right rows with every column and give the first cell."""
    return next(iter(_cells(example.rows.calls)), ""), example.rows


def longest_cell(example: Example, _: str) -> tuple[str, Reading]:
    """Read the right rows with every column and give the longest cell."""
    return max(_cells(example.rows.calls), key=len, default=""), example.rows


POLICIES: tuple[Policy, ...] = (
    always_refuse, refuse_without_a_query, echo, dump_the_tables, dump_the_rows, first_cell, longest_cell,
)  # fmt: skip


def _cells(calls: Sequence[QueryCall]) -> list[str]:
    return [str(cell) for call in calls for record in call.answer.records for cell in record if cell is not None]
