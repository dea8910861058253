"""Cut query results to a maximum length in characters of JSON, and define the kinds of query errors."""

from __future__ import annotations

import json
import math
from collections.abc import Iterable

from sql_agent.errors import QueryError
from sql_agent.schemas import Cell, QueryAnswer, QueryFailure, QueryLimits

# The kind of an error about a database that was replaced, changed, damaged, removed or closed since it was opened.
DATABASE_CHANGED = "database_changed"
# The kind of an error about an unreachable or locked database. A model never sees this kind: the statement is retried,
# and DatabaseFileError is raised if the retries fail too.
UNAVAILABLE = "unavailable"
# All kinds that a model sees. "too_complex" also covers recursive queries and values that grow too large;
# "malformed_call" is a call of the tool with arguments other than {"sql": text}.
KINDS = {
    "empty",
    "too_long",
    "too_complex",
    "syntax",
    "not_select",
    "multiple_statements",
    "forbidden_table",
    "forbidden_function",
    "unknown_table",
    "unknown_column",
    "timeout",
    "failed",
    "malformed_call",
    DATABASE_CHANGED,
}

CUT = "…"
MAX_COLUMN_NAME = 64
MAX_REFUSAL_CHARS = 400  # maximum for a message, and for a hint
_MIN_CELL = 4  # minimum length of a cut cell in JSON: two quotes, one character and "…"
_OTHER_FIELDS = 80  # characters of JSON for the fields `status`, `count` and `truncated`

Row = tuple[Cell, ...]


def fit(
    names: Iterable[str], rows: Iterable[tuple[object, ...]], limits: QueryLimits
) -> tuple[tuple[str, ...], tuple[Row, ...], bool]:
    """Return the column names, the first rows that fit into `limits`, and whether rows were left out or cells cut.

    Reads at most one more row from `rows` than it returns. Column names are cut if they need more than half of
    `max_chars`. If the first row is too long, its longest cells are cut and end with "…". Raises QueryError if the
    names or the first row are too long even then.
    """
    room = limits.max_chars - _OTHER_FIELDS
    # SQLite names the column of an expression by the whole expression.
    columns = tuple(n if len(n) <= MAX_COLUMN_NAME else n[: MAX_COLUMN_NAME - 1] + CUT for n in names)
    if _length(columns) > room // 2:
        columns = tuple(map(str, _cut(columns, room // 2)))
    room -= _length(columns)
    kept: list[Row] = []
    for raw in rows:
        if len(kept) == limits.max_rows:
            return columns, tuple(kept), True
        row = tuple(map(_cell, raw))
        length = _length(row) + 1
        if length > room:
            if not kept:
                kept.append(_cut(row, room - 1))
            return columns, tuple(kept), True
        room -= length
        kept.append(row)
    return columns, tuple(kept), False


def refusal(kind: str, message: str, hint: str | None) -> QueryAnswer:
    """Return the answer for a refused or failed statement, with `message` and `hint` cut to `MAX_REFUSAL_CHARS`."""
    failure = QueryFailure(kind=kind, message=_shortened(message), hint=_shortened(hint) if hint else None)
    return QueryAnswer(status="error", error=failure)


def _cell(value: object) -> Cell:
    if value is None or isinstance(value, str | int):
        return value
    if isinstance(value, float):
        return value if math.isfinite(value) else str(value)
    if isinstance(value, bytes):
        return f"<{len(value)} bytes of binary data>"
    raise TypeError(f"a cell is of type {type(value).__name__}")


def _length(cell: Cell | tuple[Cell, ...]) -> int:
    return len(json.dumps(cell, ensure_ascii=False, separators=(",", ":")))


def _cut(row: tuple[Cell, ...], room: int) -> tuple[Cell, ...]:
    """Return `row` with its longest texts cut to one length, to fit into `room` characters. Raises QueryError."""
    left = room - len(row) - 1  # brackets and commas
    longest = 0
    for waiting, length in zip(range(len(row), 0, -1), sorted(map(_length, row)), strict=True):
        longest = left // waiting
        if length > longest:
            break
        left -= length
    cut = tuple(_cut_text(cell, longest) if isinstance(cell, str) else cell for cell in row)
    if longest < _MIN_CELL or _length(cut) > room:
        message = f"a row of {len(row)} columns is too long for a result"
        raise QueryError("too_complex", message, hint="select only the columns that you need")
    return cut


def _cut_text(text: str, longest: int) -> str:
    """Return the longest beginning of `text` whose JSON, including "…", has at most `longest` characters."""
    if _length(text) <= longest:
        return text
    start, end = 0, min(len(text), longest)
    while start < end:  # binary search, because JSON writes an escaped character as up to six characters
        middle = (start + end + 1) // 2
        start, end = (middle, end) if _length(text[:middle]) + 1 <= longest else (start, middle - 1)
    return text[:start] + CUT


def _shortened(text: str) -> str:
    return _cut_text(text.encode("utf-8", "replace").decode("utf-8"), MAX_REFUSAL_CHARS)
