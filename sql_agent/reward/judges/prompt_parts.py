"""Build a judge's prompt: fill a template with texts, and cut the queries and their rows to a maximum length.

No text in a prompt may act as an instruction. Question and reference come from the user's file, and are JSON strings,
which their content cannot end. Statements, rows and answer are in fences with a random number, because the policy
writes them and could learn to forge a fixed fence.

Servers cache prefixes of prompts. Therefore the constant text comes first, then question and reference, which all
rollouts of a group share, and last what one rollout wrote.
"""

from __future__ import annotations

import json
import re
import secrets
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from sql_agent.schemas import Cell, QueryCall, Question, facts_of

_PLACEHOLDER = re.compile(r"\{(\w+)\}")
_LINE_MARKS = re.compile(
    r"^[ \t]*(?:#{1,6}[ \t]+|>[ \t]?|[-+*•][ \t]+|(?:-{3,}|={3,}|\*{3,})[ \t]*$|```\w*[ \t]*$)+", re.MULTILINE
)
_INLINE_MARKS = re.compile(r"\*\*|__|`+|(?<=\s)\*(?=\S)|(?<=\S)\*(?=\s|$)")
# Comments are removed, because the agent can write anything there. Quoted texts are matched too, so that they stay.
_COMMENT_OR_QUOTED = re.compile(r"""'(?:[^']|'')*'|"(?:[^"]|"")*"|`[^`]*`|--[^\n]*|/\*.*?(?:\*/|\Z)""", re.DOTALL)
_NO_ROWS = "(no rows)"
_AROUND = 40  # number of characters shown on either side of a quoted text in a long cell
_SMALLEST_CELL = 16  # minimum number of characters to which a cell is cut
_NOTE = 40  # characters reserved for each note on what was left out


def render(template: str, values: Mapping[str, str]) -> str:
    """Return `template` with {fence}, {fence_end} and the placeholders of `values` replaced.

    They are replaced in one pass, so that a placeholder inside a value stays. Unknown placeholders stay too. The fences
    get a new random number in each call, so that no text written earlier can close a fence.
    """
    number = secrets.token_hex(4)  # 32 bits suffice, because each prompt has a new number
    known = {**values, "fence": f"<<<{number}", "fence_end": f"{number}>>>"}
    return _PLACEHOLDER.sub(lambda match: known.get(match.group(1), match.group(0)), template)


def json_string(value: object) -> str:
    return json.dumps(value, ensure_ascii=False)


def reference_text(question: Question) -> str:
    """Return the reference answer as a JSON string, with a note if some of the facts suffice."""
    if question.enough is None:
        return json_string(question.answer)
    notes = {
        "en": f" (any {question.enough} of these facts are a full answer)",
        "zh": f"（其中任意{question.enough}项即为完整答案）",
    }
    return json_string(question.answer) + notes[question.lang]


def plain_text(text: str) -> str:
    """Return `text` without Markdown; words and their case stay."""
    without_lines = _LINE_MARKS.sub("", text)
    return re.sub(r"\n{2,}", "\n", _INLINE_MARKS.sub("", without_lines)).strip()


def quotes_of(question: Question) -> tuple[str, ...]:
    """Return the texts to look for in rows: the quotes of the evidence, else the facts of the reference."""
    quotes = [item.quote.strip() for item in question.evidence] or facts_of(question.answer)
    return tuple(filter(None, quotes))


def rows_text(calls: Sequence[QueryCall], quotes: Sequence[str], *, max_chars: int) -> str:
    """Return the successful queries in order: a line of JSON with statement and columns, then a line for each row.

    To fit into `max_chars`, rows without any of `quotes` are left out first, and a long cell is cut to the text around
    its quotes; marks show what is missing. Rows are JSON, so that a cell cannot imitate a line.
    """
    ran = [call for call in calls if call.answer.status == "ok"]
    if not ran:
        return "(no query ran)"
    lines = []
    for call in ran:
        lines += [_head(call), *map(json_string, call.answer.records)]
        if not call.answer.records:
            lines.append(_NO_ROWS)
    whole = "\n".join(lines)
    return whole if len(whole) <= max_chars else _shortened(ran, quotes, max_chars)


class _Line(NamedTuple):
    """A row of a result. Sorted by the fields in order, rows with a quote come first."""

    without_quote: bool
    query: int
    place: int
    text: str


def _shortened(ran: Sequence[QueryCall], quotes: Sequence[str], max_chars: int) -> str:
    """Return the rows that fit into `max_chars`, those with quotes first; a row gets at most half of `max_chars`."""
    heads = [_cut(_head(call), max_chars // 3) for call in ran]
    rows = [
        _Line(not _has_quote(record, quotes), query, place, _short_row(record, quotes, max_chars // 2))
        for query, call in enumerate(ran)
        for place, record in enumerate(call.answer.records)
    ]
    rows += [_Line(True, query, 0, _NO_ROWS) for query, call in enumerate(ran) if not call.answer.records]
    left = max_chars - _NOTE
    shown: list[_Line] = []
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


def _head(call: QueryCall) -> str:
    """Return the statement, on one line and without comments, and the columns of its result, as JSON."""
    without = _COMMENT_OR_QUOTED.sub(lambda m: " " if m.group().startswith(("--", "/*")) else m.group(), call.sql)
    return json_string({"sql": " ".join(without.split()), "columns": call.answer.columns})


def _has_quote(record: Sequence[Cell], quotes: Sequence[str]) -> bool:
    return any(quote in str(cell) for cell in record for quote in quotes)


def _short_row(record: Sequence[Cell], quotes: Sequence[str], max_chars: int) -> str:
    """Return the row as JSON of at most `max_chars`. Cells with quotes are kept, and other cells share the rest."""
    if len(whole := json_string(record)) <= max_chars:
        return whole
    cells = [_around(cell, quotes) if isinstance(cell, str) else cell for cell in record]
    with_quotes = [_has_quote([cell], quotes) for cell in record]
    used = sum(len(str(cell)) for cell, quoted in zip(cells, with_quotes, strict=True) if quoted)
    part = max(_SMALLEST_CELL, (max_chars - used) // len(record) - 4)  # 4 for quotes and comma
    shown = [
        _cut(cell, part) if isinstance(cell, str) and not quoted else cell
        for cell, quoted in zip(cells, with_quotes, strict=True)
    ]
    return _cut(json_string(shown), max_chars)


def _around(cell: str, quotes: Sequence[str]) -> str:
    """Return the quotes in `cell` with the text around them; without quotes, the whole cell."""
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
