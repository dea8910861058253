"""Rewrite a statement to read changed tables: some of their cells have another text, or some rows are missing."""

from __future__ import annotations

import re
from collections.abc import Iterable

from sqlglot import exp

from sql_agent.database.dialect import Dialect
from sql_agent.database.schema import ROW_IDS, Schema, fold, quoted
from sql_agent.schemas import Record

_WITH = re.compile(r"\s*with\b", re.IGNORECASE)
_ROW_NUMBER = re.compile(rf"\b(?:{'|'.join(ROW_IDS)})\b", re.IGNORECASE)


class Change(Record):
    """A change of one table, for `changed_statement`.

    A change applies to the rows whose row key (see `Schema.row_key`) is in `ids`, or with `others` to all other rows.
    Without a `column`, these rows are removed. With a `column`, the column's cells in these rows become `text`, or NULL
    if `text` is None. With a `part`, only the occurrences of `part` in a cell are replaced by `text`. With `append`,
    `text` is appended to the cell. Several changes of the same rows and column are applied in order. If two sets of
    rows overlap, the changes of the first set apply to the shared rows.
    """

    table: str
    ids: tuple[int, ...]
    column: str | None = None
    text: str | None = None
    part: str | None = None
    append: bool = False
    others: bool = False


def changed_statement(sql: str, schema: Schema, changes: Iterable[Change], dialect: Dialect) -> str:
    """Return the checked statement `sql`, rewritten to read the tables after `changes`.

    Each changed table is replaced by a WITH query with the table's name. Changes of a table without a row key, or of a
    table or column outside the schema, are ignored.
    """
    by_table: dict[str, list[Change]] = {}
    for change in changes:
        by_table.setdefault(fold(change.table), []).append(change)
    keys = {table: key for table, _ in schema.tables if fold(table) in by_table and (key := schema.row_key(table))}
    if not keys:
        return sql
    replaced = [_replacement(table, key, by_table[fold(table)], schema, dialect) for table, key in keys.items()]
    if re.search(rf"\b{re.escape(schema.database)}\b", sql, re.IGNORECASE):  # a WITH query takes no qualifier
        sql = without_database(sql, (node for tree in dialect.parse(sql) if tree is not None for node in tree.walk()))
    # A WITH query has no rowid, so the statement must read the row key's column instead.
    sql = _ROW_NUMBER.sub(quoted(next(iter(keys.values()))), sql)
    match = _WITH.match(sql)
    return f"WITH {', '.join(replaced)}{',' + sql[match.end() :] if match else ' ' + sql}"


def _replacement(table: str, key: str, changes: list[Change], schema: Schema, dialect: Dialect) -> str:
    """Return a WITH query that has the name and columns of `table` and reads `table` with `changes` applied."""

    def shown(column: str) -> str:
        name = quoted(column)
        texts: dict[str, str] = {}  # the changed cell as SQL, keyed by the condition for its rows
        for change in changes:
            if change.column is not None and fold(change.column) == fold(column):
                rows = _rows(key, change)
                texts[rows] = _text(texts.get(rows, name), change, dialect)
        # One CASE with many branches, because the engines limit how deeply expressions are nested.
        cases = " ".join(f"WHEN {rows} THEN {text}" for rows, text in texts.items())
        return f"CASE {cases} ELSE {name} END AS {name}" if texts else name

    selected = [*map(shown, schema.columns[table])]
    if fold(key) not in map(fold, schema.columns[table]):
        selected.append(f"{quoted(key)} AS {quoted(key)}")
    kept = [f"NOT ({_rows(key, change)})" for change in changes if change.column is None]
    where = f" WHERE {' AND '.join(kept)}" if kept else ""
    return f"{quoted(table)} AS (SELECT {', '.join(selected)} FROM {quoted(schema.database)}.{quoted(table)}{where})"


def _rows(key: str, change: Change) -> str:
    return f"{quoted(key)} {'NOT IN' if change.others else 'IN'} ({', '.join(map(str, change.ids))})"


def _text(cell: str, change: Change, dialect: Dialect) -> str:
    text = "NULL" if change.text is None else dialect.text_literal(change.text)
    if change.part is not None:
        return f"REPLACE({cell}, {dialect.text_literal(change.part)}, {text})"
    if change.append:
        return dialect.joined(cell, text)
    return text


def without_database(text: str, nodes: Iterable[exp.Expr]) -> str:
    """Return the statement `text` without the database qualifier of the tables and columns in `nodes`."""
    names = [node.args["db"] for node in nodes if isinstance(node, exp.Table | exp.Column) and node.args.get("db")]
    for name in sorted(names, key=lambda node: -int(node.meta["start"])):
        rest = text[name.meta["end"] + 1 :].lstrip()
        text = text[: name.meta["start"]] + rest.removeprefix(".").lstrip()
    return text
