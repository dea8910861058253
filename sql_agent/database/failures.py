"""Turns what SQLite says about a failed statement into a kind and a hint that a model can act on."""

from __future__ import annotations

import re

from sqlglot import exp

from sql_agent.database import allowed
from sql_agent.database.guard import is_value_position, parse
from sql_agent.database.schema import Schema, fold
from sql_agent.errors import QueryError

# The first pattern found in SQLite's message decides; {table}, {column} and {function} are filled in below.
_RULES: tuple[tuple[re.Pattern[str], str, str | None], ...] = (
    (re.compile(r"^interrupted$"), "timeout", "read fewer rows: add WHERE and LIMIT, join fewer tables"),
    (
        re.compile(r"malformed|not a database|disk I/O|short read"),
        "database_changed",
        "the file is damaged: restore it",
    ),
    (re.compile(r"locked|busy"), "failed", "another program writes to the database: try again"),
    (re.compile(r"no such column: (?P<column>.+)"), "unknown_column", "{column}"),
    (re.compile(r"no such table: (?P<table>.+)"), "unknown_table", "{table}"),
    (re.compile(r"(?:no such|use) function: (?P<function>.+)"), "forbidden_function", "{function}"),
    (re.compile(r"prohibited|not authorized"), "forbidden_table", "{tables}"),
    (re.compile(r"^ambiguous column name"), "failed", "write the table's name or alias before the column"),
    (
        re.compile(r"too big|too complex|too many|too large|out of memory|stack overflow|too deep"),
        "too_complex",
        "select less: fewer rows, substr() of long texts",
    ),
    (
        re.compile(r"syntax error|incomplete input|unrecognized token"),
        "syntax",
        "write one SELECT statement in SQLite's dialect",
    ),
)


def from_sqlite(error: BaseException, sql: str, schema: Schema) -> QueryError:
    """The QueryError for an exception of sqlite3 on the checked statement `sql`; SQLite's message is kept."""
    message = str(error) or ("out of memory" if isinstance(error, MemoryError) else type(error).__name__)
    for pattern, kind, hint in _RULES:
        match = pattern.search(message)
        if match is None:
            continue
        return QueryError(kind, message, hint=_filled(hint, match.groupdict(), sql, schema))
    return QueryError("failed", message)


def _filled(hint: str | None, found: dict[str, str], sql: str, schema: Schema) -> str | None:
    if "column" in found:
        return _about_column(found["column"], sql, schema)
    if "table" in found:
        return schema.nearest_table(found["table"])
    if "function" in found:
        return allowed.FUNCTION_HINTS.get(fold(found["function"]))
    return hint.format(tables=schema.only_these) if hint else None


def _about_column(name: str, sql: str, schema: Schema) -> str:
    """A hint for a column that is not there, or for a text without its quotes."""
    tree = parse(sql)
    for column in tree.find_all(exp.Column):
        if column.name == name and is_value_position(column):
            return f"write a text in quotes: '{name}'"
    return schema.nearest_column(name, {fold(table.name) for table in tree.find_all(exp.Table)})
