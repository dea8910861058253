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

    The rows are those with `ids`, or all `others`. Without a `column` they are absent. With a column, their cells read
    as `text`, NULL if that is None; with a `part`, only this part of each cell reads as `text`; with `append`, the cell
    is followed by `text`. Changes of the same rows and column follow each other; of two sets of rows that share a row,
    the first counts.
    """

    table: str
    ids: tuple[int, ...]
    column: str | None = None
    text: str | None = None
    part: str | None = None
    append: bool = False
    others: bool = False


def changed_statement(sql: str, schema: Schema, changes: Iterable[Change], dialect: Dialect) -> str:
    """Return the checked statement `sql` over the tables with `changes`.

    Each changed table is replaced by a WITH query of its name. Changes of tables or columns that the schema lacks, and
    of tables without a row key, are left out.
    """
    by_table: dict[str, list[Change]] = {}
    for change in changes:
        by_table.setdefault(fold(change.table), []).append(change)
    keys = {table: key for table, _ in schema.tables if fold(table) in by_table and (key := schema.row_key(table))}
    if not keys:
        return sql
    # A WITH query has no row number of the engine's own.
    plain = _ROW_NUMBER.sub(quoted(next(iter(keys.values()))), sql)
    replaced = [
        _replacement(table, columns, by_table[fold(table)], keys[table], schema.database, dialect)
        for table, columns in schema.tables
        if table in keys
    ]
    if re.search(rf"\b{re.escape(schema.database)}\b", sql, re.IGNORECASE):  # a WITH query has no database
        plain = without_database(sql, (node for tree in dialect.parse(sql) if tree is not None for node in tree.walk()))
    match = _WITH.match(plain)
    return f"WITH {', '.join(replaced)}{',' + plain[match.end() :] if match else ' ' + plain}"


def _replacement(  # noqa: PLR0917  the parts of a WITH query, in the order in which it has them
    table: str, columns: Sequence[str], changes: list[Change], key: str, database: str, dialect: Dialect
) -> str:
    def shown(column: str) -> str:
        name = quoted(column)
        texts: dict[str, str] = {}  # the cell of each set of rows, which may have several changes
        for change in changes:
            if change.column is not None and fold(change.column) == fold(column):
                rows = _rows(key, change)
                texts[rows] = _text(texts.get(rows, name), change, dialect)
        # One CASE, because a nested one for each row is too deep for the engines.
        cases = " ".join(f"WHEN {rows} THEN {text}" for rows, text in texts.items())
        return f"CASE {cases} ELSE {name} END AS {name}" if texts else name

    selected = [*map(shown, columns)]
    if fold(key) not in map(fold, columns):
        selected.append(f"{quoted(key)} AS {quoted(key)}")
    kept = [f"NOT ({_rows(key, change)})" for change in changes if change.column is None]
    where = f" WHERE {' AND '.join(kept)}" if kept else ""
    return f"{quoted(table)} AS (SELECT {', '.join(selected)} FROM {quoted(database)}.{quoted(table)}{where})"


def _rows(key: str, change: Change) -> str:
    return f"{quoted(key)} {'NOT IN' if change.others else 'IN'} ({', '.join(map(str, change.ids))})"


def _text(cell: str, change: Change, dialect: Dialect) -> str:
    text = "NULL" if change.text is None else dialect.text_literal(change.text)
    if change.part is not None:
        return f"REPLACE({cell}, {dialect.text_literal(change.part)}, {text})"
    if change.append:
        return f"CONCAT({cell}, {text})" if dialect.name == "mysql" else f"{cell} || {text}"
    return text


def without_database(text: str, nodes: Iterable[exp.Expr]) -> str:
    """Return the statement `text` with `db.table` shortened to `table`, for the tables and columns in `nodes`."""
    names = [node.args["db"] for node in nodes if isinstance(node, exp.Table | exp.Column) and node.args.get("db")]
    for name in sorted(names, key=lambda node: -int(node.meta["start"])):
        rest = text[name.meta["end"] + 1 :].lstrip()
        text = text[: name.meta["start"]] + rest.removeprefix(".").lstrip()
    return text
