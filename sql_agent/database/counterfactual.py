"""Write a statement anew so that it reads changed tables: some cells have another text, some rows are absent."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence

from sqlglot import exp

from sql_agent.database.dialect import Dialect
from sql_agent.database.schema import Schema, fold, quoted
from sql_agent.schemas import Record

_WITH = re.compile(r"\s*with\b", re.IGNORECASE)
_ROW_NUMBER = re.compile(r"\b(?:rowid|_rowid_|oid)\b", re.IGNORECASE)  # SQLite's names for an integer key


class Change(Record):
    """A change of one table; the numbers `ids` are those of the column `Schema.row_key`.

    With a `column`, the cells of the rows `ids` in it read as `text`, NULL if that is None. Without a column the rows
    are absent; with `others`, all rows but these are absent.
    """

    table: str
    ids: tuple[int, ...]
    column: str | None = None
    text: str | None = None
    others: bool = False


def changed_statement(sql: str, schema: Schema, changes: Iterable[Change], dialect: Dialect) -> str:
    """Return the checked statement `sql` over the tables with `changes`.

    Each changed table is replaced by a WITH query of its name. Changes of tables or columns that the schema lacks, and
    of tables without a row key, are left out.
    """
    by_table: dict[str, list[Change]] = {}
    for change in changes:
        by_table.setdefault(fold(change.table), []).append(change)
    numbering = next(iter(_ROW_NUMBER.findall(sql)), None)
    replaced = [
        _replacement(table, columns, by_table[fold(table)], schema, dialect, numbering=numbering)
        for table, columns in schema.tables
        if fold(table) in by_table and schema.row_key(table) is not None
    ]
    if not replaced:
        return sql
    plain = sql
    if re.search(rf"\b{re.escape(schema.database)}\b", sql, re.IGNORECASE):  # a WITH query has no database
        plain = without_database(sql, (node for tree in dialect.parse(sql) if tree is not None for node in tree.walk()))
    match = _WITH.match(plain)
    return f"WITH {', '.join(replaced)}{',' + plain[match.end() :] if match else ' ' + plain}"


def _replacement(
    table: str,
    columns: Sequence[str],
    changes: list[Change],
    schema: Schema,
    dialect: Dialect,
    *,
    numbering: str | None,
) -> str:
    key = quoted(schema.row_key(table) or "id")

    def shown(column: str) -> str:
        name = sql = quoted(column)
        for change in changes:
            if change.column is not None and fold(change.column) == fold(column):
                text = "NULL" if change.text is None else dialect.text_literal(change.text)
                sql = f"CASE WHEN {key} IN {_listed(change.ids)} THEN {text} ELSE {sql} END"
        return name if sql == name else f"{sql} AS {name}"

    selected = [*map(shown, columns), *([f"{key} AS {numbering}"] if numbering else [])]
    kept = [
        f"{key} {'IN' if change.others else 'NOT IN'} {_listed(change.ids)}"
        for change in changes
        if change.column is None
    ]
    where = f" WHERE {' AND '.join(kept)}" if kept else ""
    source = f"{quoted(schema.database)}.{quoted(table)}"
    return f"{quoted(table)} AS (SELECT {', '.join(selected)} FROM {source}{where})"


def _listed(ids: Iterable[int]) -> str:
    return f"({', '.join(map(str, ids))})"


def without_database(text: str, nodes: Iterable[exp.Expr]) -> str:
    """Return the statement `text` without the database's name in the tables and columns among `nodes`."""
    names = [node.args["db"] for node in nodes if isinstance(node, exp.Table | exp.Column) and node.args.get("db")]
    for name in sorted(names, key=lambda node: -int(node.meta["start"])):
        rest = text[name.meta["end"] + 1 :].lstrip()
        text = text[: name.meta["start"]] + rest.removeprefix(".").lstrip()
    return text
