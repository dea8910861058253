"""Show a judge what the agent's queries were and which rows they returned, within a number of characters."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from typing import NamedTuple

from sql_agent.schemas import Cell, QueryCall, Question

_AROUND = 40  # characters shown on either side of a quote in a long cell
_SMALLEST_CELL = 16
_NO_ROWS = "(no rows)"
_NOTE = 40  # characters kept free for each note on what was left out
# A comment is text of the agent's own that never reached the database; quoted texts are matched so that they stay.
_COMMENT_OR_QUOTED = re.compile(r"""'(?:[^']|'')*'|"(?:[^"]|"")*"|`[^`]*`|--[^\n]*|/\*.*?(?:\*/|\Z)""", re.DOTALL)
_FACT_END = re.compile("[;；]")


def quotes_of(question: Question) -> tuple[str, ...]:
    """Return what rows must hold to support the answer: the evidence's quotes, else the reference's facts."""
    quotes = [item.quote for item in question.evidence] or _FACT_END.split(question.answer)
    return tuple(quote.strip() for quote in quotes if quote.strip())


def rows_text(calls: Sequence[QueryCall], quotes: Sequence[str], *, max_chars: int) -> str:
    """Return the successful queries in order: a line of JSON with statement and columns, then one for each row.

    What is longer than `max_chars` is cut, with a mark where something is missing: first the rows without any of
    `quotes`, and in long cells the text around them. JSON, so that a cell cannot look like a line of its own.
    """
    ran = [call for call in calls if call.answer.status == "ok"]
    if not ran:
        return "(no query ran)"
    lines = []
    for call in ran:
        lines += [_head(_statement(call), _json(call.answer.columns)), *map(_json, call.answer.records)]
        if not call.answer.records:
            lines.append(_NO_ROWS)
    whole = "\n".join(lines)
    return whole if len(whole) <= max_chars else _shortened(ran, quotes, max_chars)


def _head(statement: str, columns: str) -> str:
    return f'{{"sql": {_json(statement)}, "columns": {columns}}}'


def _short_head(call: QueryCall, max_chars: int) -> str:
    head = _head(_cut(_statement(call), max_chars // 4), _cut(_json(call.answer.columns), max_chars // 8))
    return _cut(head, max_chars // 3)


def _statement(call: QueryCall) -> str:
    """Return the statement on one line, without comments."""
    return " ".join(_COMMENT_OR_QUOTED.sub(_keep_quoted, call.sql).split())


def _keep_quoted(match: re.Match[str]) -> str:
    return " " if match.group().startswith(("--", "/*")) else match.group()


def _shortened(ran: Sequence[QueryCall], quotes: Sequence[str], max_chars: int) -> str:
    """Return rows with quotes first, each row at most half of `max_chars`, as many as there is room for."""
    heads = [_short_head(call, max_chars) for call in ran]
    rows = [row for number, call in enumerate(ran) for row in _rows_of(number, call, quotes, max_chars // 2)]
    left = max_chars - _NOTE
    shown: list[_Row] = []
    seen: set[int] = set()
    for row in sorted(rows):
        cost = len(row.text) + 1 + (0 if row.query in seen else len(heads[row.query]) + 1 + _NOTE)
        if cost <= left:
            left -= cost
            seen.add(row.query)
            shown.append(row)
    lines = []
    for query in sorted(seen):
        texts = [row.text for row in shown if row.query == query]
        missing = sum(row.query == query for row in rows) - len(texts)
        lines += [heads[query], *texts, *([f"({missing} more rows left out)"] if missing else [])]
    if len(seen) < len(ran):
        lines.append(f"({len(ran) - len(seen)} more queries left out)")
    return "\n".join(lines)


class _Row(NamedTuple):
    """One line that may be shown; what sorts first is what matters most."""

    without_quote: bool
    query: int
    place: int
    text: str


def _rows_of(query: int, call: QueryCall, quotes: Sequence[str], max_chars: int) -> list[_Row]:
    if not call.answer.records:
        return [_Row(True, query, 0, _NO_ROWS)]
    return [
        _Row(not _holds(record, quotes), query, place, _short_row(record, quotes, max_chars))
        for place, record in enumerate(call.answer.records)
    ]


def _holds(record: Sequence[Cell], quotes: Sequence[str]) -> bool:
    return any(quote in str(cell) for cell in record for quote in quotes)


def _short_row(record: Sequence[Cell], quotes: Sequence[str], max_chars: int) -> str:
    """Return the row as JSON in `max_chars`: text around quotes whole, other cells an equal part of the rest."""
    if len(_json(record)) <= max_chars:
        return _json(record)
    cells = [_around(cell, quotes) if isinstance(cell, str) else cell for cell in record]
    with_quotes = [_holds([cell], quotes) for cell in record]
    used = sum(len(str(cell)) for cell, holds in zip(cells, with_quotes, strict=True) if holds)
    part = max(_SMALLEST_CELL, (max_chars - used) // len(record) - 4)  # 4 for quotes and comma
    shown = [
        _cut(cell, part) if isinstance(cell, str) and not holds else cell
        for cell, holds in zip(cells, with_quotes, strict=True)
    ]
    return _cut(_json(shown), max_chars)


def _around(cell: str, quotes: Sequence[str]) -> str:
    """Reduce a long cell to the text around the quotes that it holds; unchanged without any."""
    found = sorted((cell.index(quote), cell.index(quote) + len(quote)) for quote in quotes if quote in cell)
    if not found:
        return cell
    parts: list[str] = []
    end = 0
    for first, last in found:
        start, stop = max(end, first - _AROUND), min(len(cell), last + _AROUND)
        if stop > end:
            parts += [_gap(start - end), cell[start:stop]]
            end = stop
    return "".join([*parts, _gap(len(cell) - end)])


def _cut(text: str, max_chars: int) -> str:
    if len(text) <= max_chars:
        return text
    keep = max(0, max_chars - len(_gap(len(text))))
    return text[:keep] + _gap(len(text) - keep)


def _gap(chars: int) -> str:
    return f"…[{chars} cut]…" if chars else ""


def _json(value: object) -> str:
    return json.dumps(value, ensure_ascii=False)
