"""Tell from an answer whether it may lack something that a hint can help with."""

from __future__ import annotations

import re

from sql_agent.schemas import Cell, QueryAnswer

FEW_ROWS = 3
_LIST_OF_TEXTS = re.compile(r"\bIN\s*\(\s*['\"]", re.IGNORECASE)


def is_wanted(sql: str, answer: QueryAnswer) -> bool:
    """Return whether an answer may need a hint: no rows, few of them with nothing in a column, or a list of names."""
    lacks = not answer.records or may_count_nothing(answer) or has_empty_places(answer)
    return lacks or _LIST_OF_TEXTS.search(sql) is not None


def may_count_nothing(answer: QueryAnswer) -> bool:
    """Return whether an answer looks like an aggregate over no rows: one record of nothing but NULL and 0."""
    return len(answer.records) == 1 and all(cell in {None, 0} for cell in answer.records[0])


def has_empty_places(answer: QueryAnswer) -> bool:
    """Return whether an answer has few rows, and a column that holds nothing in any of them."""
    return 0 < len(answer.records) <= FEW_ROWS and bool(empty_places(answer))


def empty_places(answer: QueryAnswer) -> list[int]:
    """Return the output columns that hold nothing in any row."""
    return [place for place, cells in enumerate(zip(*answer.records, strict=True)) if all(map(_is_empty, cells))]


def _is_empty(cell: Cell) -> bool:
    return cell is None or (isinstance(cell, str) and not cell.strip())
