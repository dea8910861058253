"""Cut rows to the limits of what a model reads, and convert cells to values that JSON has."""

from __future__ import annotations

import math
from collections.abc import Iterable

from sql_agent.schemas import Cell, QueryLimits

CUT = "…"
MAX_COLUMN_NAME = 64

Row = tuple[Cell, ...]


def fit(rows: Iterable[tuple[object, ...]], limits: QueryLimits) -> tuple[tuple[Row, ...], bool]:
    """Return the leading rows that fit into `limits`, and whether anything was left out or cut.

    Rows are taken from the iterator one at a time, at most one more than is returned. A first row that is too long
    by itself is kept with its longest cells cut; a cut cell ends with "…".
    """
    kept: list[Row] = []
    chars = 0
    for raw in rows:
        if len(kept) == limits.max_rows:
            return tuple(kept), True
        row = tuple(map(_cell, raw))
        chars += sum(map(_length, row))
        if chars > limits.max_chars:
            if not kept:
                kept.append(_cut(row, limits.max_chars))
            return tuple(kept), True
        kept.append(row)
    return tuple(kept), False


def column_name(name: str) -> str:
    """Cut the name of an output column, because SQLite names an expression after its whole text."""
    return name if len(name) <= MAX_COLUMN_NAME else name[: MAX_COLUMN_NAME - 1] + CUT


def _cell(value: object) -> Cell:
    if value is None or isinstance(value, str | int):
        return value
    if isinstance(value, float):
        return value if math.isfinite(value) else str(value)
    if isinstance(value, bytes):
        return f"<{len(value)} bytes of binary data>"
    raise TypeError(f"SQLite gave a {type(value).__name__}")


def _length(cell: Cell) -> int:
    return len(cell) if isinstance(cell, str) else len(str(cell))


def _cut(row: Row, max_chars: int) -> Row:
    """Cut the longest cells to one common length, so that short cells beside them stay whole."""
    left = max_chars
    longest = 1
    for waiting, length in zip(range(len(row), 0, -1), sorted(map(_length, row)), strict=True):
        longest = max(1, left // waiting)
        if length > longest:
            break
        left -= length
    return tuple(cell[: longest - 1] + CUT if isinstance(cell, str) and len(cell) > longest else cell for cell in row)
