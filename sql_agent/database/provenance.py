"""Find out whether a statement read certain cells: its result changes once the cells are NULL.

The form of the statement does not matter: by name or id, with aliases, WITH queries or subqueries, for one row or all,
for values or a count. This is counterfactual why-provenance (Buneman, Khanna and Tan 2001, "Why and Where").
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Protocol

from sqlglot import exp

from sql_agent.database.dialect import Dialect
from sql_agent.database.schema import Schema, fold, quoted
from sql_agent.schemas import Evidence, QueryAnswer, QueryCall

_WITH = re.compile(r"\s*with\b", re.IGNORECASE)
_NO_ROW = -(2**63)  # a row id that no table has


@dataclass(frozen=True)
class CellRef:
    """Names one cell of a table; the column `id` identifies its row."""

    table: str
    row_id: int
    column: str


class _Database(Protocol):
    def query(self, sql: str, *, emptied: Sequence[CellRef] = ()) -> QueryAnswer: ...


def evidence_read(
    database: _Database, calls: Iterable[QueryCall], evidence: Sequence[Evidence]
) -> tuple[Evidence, ...]:
    """Return the rows of `evidence` that at least one of `calls` read.

    A call has read a row if the call's answer changes, or becomes an error, once the row's cells are NULL.
    """
    rows: dict[tuple[str, int], list[Evidence]] = {}
    for item in evidence:
        rows.setdefault((item.table, item.row_id), []).append(item)
    read: set[tuple[str, int]] = set()
    for call in calls:
        if call.answer.status != "ok" or not _changes(database, call, evidence):
            continue
        if len(rows) == 1:
            read |= rows.keys()
        else:
            read |= {row for row, cells in rows.items() if row not in read and _changes(database, call, cells)}
    return tuple(item for item in evidence if (item.table, item.row_id) in read)


def _changes(database: _Database, call: QueryCall, cells: Iterable[Evidence]) -> bool:
    emptied = [CellRef(item.table, item.row_id, item.field) for item in cells]
    without = _rows(database.query(call.sql, emptied=emptied))
    if without == _rows(call.answer):
        return False
    # With a WITH query in place of the table, an engine may choose other rows for a LIMIT or another order.
    nothing = [CellRef(cell.table, _NO_ROW, cell.column) for cell in emptied]
    return without != _rows(database.query(call.sql, emptied=nothing))


def _rows(answer: QueryAnswer) -> tuple[list[str], bool, str | None]:
    return sorted(map(repr, answer.records)), answer.truncated, answer.error.kind if answer.error else None


def with_cells_emptied(sql: str, schema: Schema, cells: Iterable[CellRef], dialect: Dialect) -> str:
    """Return the checked statement `sql` changed so that `cells` are NULL.

    A WITH query replaces each table that has such a cell. Cells outside the schema are ignored.
    """
    emptied: dict[str, dict[str, list[int]]] = {}
    for cell in cells:
        emptied.setdefault(fold(cell.table), {}).setdefault(fold(cell.column), []).append(cell.row_id)
    replaced = [
        _replacement(table, columns, emptied[fold(table)], schema)
        for table, columns in schema.tables
        if fold(table) in emptied
    ]
    if not replaced:
        return sql
    plain = sql
    if re.search(rf"\b{re.escape(schema.database)}\b", sql, re.IGNORECASE):  # a WITH query has no database
        plain = without_database(sql, (node for tree in dialect.parse(sql) if tree is not None for node in tree.walk()))
    match = _WITH.match(plain)
    return f"WITH {', '.join(replaced)}{',' + plain[match.end() :] if match else ' ' + plain}"


def _replacement(table: str, columns: Iterable[str], emptied: dict[str, list[int]], schema: Schema) -> str:
    def shown(column: str) -> str:
        rows = emptied.get(fold(column))
        name = quoted(column)
        return f"CASE WHEN id IN ({', '.join(map(str, rows))}) THEN NULL ELSE {name} END AS {name}" if rows else name

    return (
        f"{quoted(table)} AS (SELECT {', '.join(map(shown, columns))} FROM {quoted(schema.database)}.{quoted(table)})"
    )


def without_database(text: str, nodes: Iterable[exp.Expr]) -> str:
    """Return the statement `text` without the database's name in the tables and columns among `nodes`."""
    names = [node.args["db"] for node in nodes if isinstance(node, exp.Table | exp.Column) and node.args.get("db")]
    for name in sorted(names, key=lambda node: -int(node.meta["start"])):
        rest = text[name.meta["end"] + 1 :].lstrip()
        text = text[: name.meta["start"]] + rest.removeprefix(".").lstrip()
    return text
