"""Turn what SQLite says about a failed statement into a kind and a hint that a model can act on."""

from __future__ import annotations

import re

from sqlglot import exp

from sql_agent.database.answers import UNAVAILABLE
from sql_agent.database.guard import clean, parse
from sql_agent.database.schema import Schema, fold
from sql_agent.database.sqlite.dialect import SQLITE, is_value_position
from sql_agent.errors import QueryError

# The first pattern found in SQLite's message decides; {table}, {column} and {function} are filled in below.
_RULES: tuple[tuple[re.Pattern[str], str, str | None], ...] = (
    (re.compile(r"^interrupted$"), "timeout", "read fewer rows: add WHERE and LIMIT, join fewer tables"),
    (
        re.compile(r"malformed(?! JSON)|not a database|disk I/O|short read"),
        "database_changed",
        "the file is damaged: restore it",
    ),
    (re.compile(r"locked|busy"), UNAVAILABLE, "another program writes to the file: wait until it has ended"),
    (re.compile(r"no such column: (?P<column>.+)"), "unknown_column", "{column}"),
    (re.compile(r"no such table: (?P<table>.+)"), "unknown_table", "{table}"),
    (re.compile(r"(?:no such|use) function: (?P<function>.+)"), "forbidden_function", "{function}"),
    (re.compile(r"prohibited|not authorized"), "forbidden_table", "{tables}"),
    *(
        (re.compile(pattern), "failed", hint)
        for pattern, hint in (
            (r"^ambiguous column name", "write the table's name or alias before the column"),
            (r"HAVING clause|before HAVING", "write WHERE in place of HAVING, or add GROUP BY"),
            (r"misuse of aggregate", "write the condition in HAVING after GROUP BY, or compare with (SELECT ...)"),
            (r"misuse of window|may not be used as a window", "put the window function into a subquery"),
            (r"wrong number of arguments", "give the function as many values as it takes"),
            (r"same number of result columns", "give every SELECT of the UNION as many columns"),
            (
                r"ORDER BY term|clause should come (?:before|after)",
                "order once, at the end, by a column of the first SELECT",
            ),
            (r"term out of range", "order and group by a column's name"),
            (r"sub-select returns|row value misused|values for", "compare as many values as the subquery has columns"),
            (r"no such collation", "write COLLATE NOCASE, or leave it out"),
            (r"no tables specified", "add FROM and a table"),
            (r"circular reference|duplicate WITH", "give every WITH query a name of its own"),
            (r"datatype mismatch", "write a whole number after LIMIT and OFFSET"),
            (
                r"malformed JSON|bad JSON path",
                "give a text that json_valid() accepts, and a path like '$.a[0]'",
            ),
            (r"cannot join using|no such index", "write JOIN ... ON a.x = b.y"),
        )
    ),
    (
        re.compile(r"too many SQL variables|variable number must|[Ii]ncorrect number of bindings|supply a value for"),
        "syntax",
        "write the value itself in place of ? or :name",
    ),
    (
        re.compile(r"too big|too complex|too many|too large|out of memory|stack overflow|too deep"),
        "too_complex",
        "select less: fewer rows, substr() of long texts",
    ),
    (
        re.compile(r"syntax error|incomplete input|unrecognized token"),
        "syntax",
        "{dialect}",
    ),
)


def from_sqlite(error: BaseException, sql: str, schema: Schema) -> QueryError:
    """Return the QueryError for an exception of sqlite3 on the statement `sql`; SQLite's message is kept."""
    message = str(error) or ("out of memory" if isinstance(error, MemoryError) else type(error).__name__)
    for pattern, kind, hint in _RULES:
        match = pattern.search(message)
        if match is None:
            continue
        return QueryError(kind, message, hint=_filled(hint, match.groupdict(), sql, schema))
    return QueryError("failed", message, hint=SQLITE.syntax_hint(sql))


def _filled(hint: str | None, found: dict[str, str], sql: str, schema: Schema) -> str | None:
    if "column" in found:
        return _about_column(found["column"], sql, schema)
    if "table" in found:
        return schema.nearest_table(found["table"])
    if "function" in found:
        return SQLITE.function_hint(fold(found["function"]))
    return hint.format(tables=schema.only_these, dialect=SQLITE.syntax_hint(sql)) if hint else None


def unknown_quoted(name: str, tree: exp.Expr, schema: Schema) -> QueryError:
    """Return the QueryError for a word in double quotes which stands where a column is expected."""
    hint = f"{_nearest(name, tree, schema)}; write a text in single quotes: '{name}'"
    return QueryError("unknown_column", f"no such column: {name}", hint=hint)


def _about_column(name: str, sql: str, schema: Schema) -> str:
    """Return a hint for a column that is not there, or for a text without its quotes."""
    try:
        tree = parse(clean(sql, SQLITE), SQLITE)
    except Exception:  # also sqlglot's own faults
        return schema.nearest_column(name)
    if any(column.name == name and is_value_position(column) for column in tree.find_all(exp.Column)):
        return f"write a text in quotes: '{name}'"
    return _nearest(name, tree, schema)


def _nearest(name: str, tree: exp.Expr, schema: Schema) -> str:
    names = (schema.spelled(table.name) for table in tree.find_all(exp.Table))
    return schema.nearest_column(name, {table for table in names if table})
