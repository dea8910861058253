"""Convert an engine's error into a QueryError: the engine's message, the kind of the error, a hint for the model."""

from __future__ import annotations

import re
from collections.abc import Collection
from typing import NamedTuple

import pymysql
from sqlglot import exp

from sql_agent.database.answers import DATABASE_CHANGED, UNAVAILABLE
from sql_agent.database.dialect import Dialect
from sql_agent.database.guard import clean, parse
from sql_agent.database.mysql.dialect import MYSQL
from sql_agent.database.schema import Schema, fold
from sql_agent.database.sqlite.dialect import SQLITE, is_value_position
from sql_agent.errors import QueryError

# MySQL's error numbers for a lost connection, after which a statement may be sent again.
LOST = frozenset({1053, 1927, 2006, 2013, 2055, 4031})
# MySQL's error numbers for a failed connection: too many connections, access denied, unknown database, no TLS, …
_UNREACHABLE = frozenset(
    {1040, 1044, 1045, 1049, 1129, 1130, 1203, 1226, 2002, 2003, 2005, 2026, 3118, 3159, 4151, *LOST}
)
_TOO_LARGE = {3, 126, 1021, 1037, 1038, 1041, 1104, 1114, 1116, 1117, 1290, 1301, 1436, 1712, 4006, 4065}


class _Rule(NamedTuple):
    """The kind and hint of the errors whose SQLite message matches `pattern` or whose MySQL number is in `codes`.

    The pattern's group `name` is the unknown column, table or function. In `hint`, {tables} stands for the readable
    tables and {syntax} for the result of `Dialect.syntax_hint`.
    """

    kind: str
    hint: str
    pattern: str = ""
    codes: Collection[int] = ()


# Rules of the kind "failed": the hint, the pattern of SQLite's message, and MySQL's error numbers.
_FAILED: tuple[tuple[str, str, tuple[int, ...]], ...] = (
    ("write the table's name or alias before the column", r"^ambiguous column name", (1052,)),
    ("write WHERE in place of HAVING, or add GROUP BY", r"HAVING clause|before HAVING", ()),
    ("write the condition in HAVING after GROUP BY, or compare with (SELECT ...)", r"misuse of aggregate", (1111,)),
    ("put the window function into a subquery", r"misuse of window|may not be used as a window", (4015,)),
    ("give the function as many values as it takes", r"wrong number of arguments", (1582,)),
    ("give every SELECT of the UNION as many columns", r"same number of result columns", (1222,)),
    ("order by a column of the first SELECT, at the end", r"ORDER BY term|clause should come (?:before|after)", ()),
    ("order and group by a column's name", r"term out of range", ()),
    ("compare as many values as the subquery has columns", r"sub-select returns|row value misused|values for", (1241,)),
    ("write COLLATE NOCASE, or leave it out", r"no such collation", ()),
    ("add FROM and a table", r"no tables specified", ()),
    ("give every WITH query a name of its own", r"circular reference|duplicate WITH", ()),
    ("write a whole number after LIMIT and OFFSET", r"datatype mismatch", ()),
    ("give a text that json_valid() accepts, and a path like '$.a[0]'", r"malformed JSON|bad JSON path", ()),
    ("write JOIN ... ON a.x = b.y", r"cannot join using|no such index", ()),
    ("write every selected column in GROUP BY, or MAX() around it", "", (1055,)),
    ("group by a column", "", (1056,)),
    ("give the columns of the subquery different names", "", (1060,)),
    ("give each table an alias of its own", "", (1066,)),
    ("write LIKE '%word%'", "", (1139, 1191)),
    ("add GROUP BY, or MAX() around the column", "", (1140,)),
    ("another program writes to the database: try again", "", (1205, 1213)),
    ("write the LIMIT in a subquery in FROM", "", (1235,)),
    ("write IN (SELECT ...), or LIMIT 1 in the subquery", "", (1242,)),
    ("use the alias in ORDER BY or HAVING, or put the SELECT into FROM", "", (1247,)),
    ("give the subquery in FROM a name: FROM (SELECT ...) AS t", "", (1248,)),
    ("order by the column's name without its table", "", (1250,)),
    ("leave COLLATE out", "", (1267, 1273)),
    ("write smaller numbers", "", (1690,)),
)
# The first match decides.
_RULES = (
    _Rule("timeout", "read fewer rows: add WHERE and LIMIT, join fewer tables", r"^interrupted$", (1317, 1969, 3024)),
    _Rule(DATABASE_CHANGED, "restore the damaged file", r"malformed(?! JSON)|not a database|disk I/O|short read"),
    _Rule(DATABASE_CHANGED, "the table was removed: start again", "", (1146,)),
    _Rule(UNAVAILABLE, "wait until the other program that writes to the file has ended", r"locked|busy"),
    _Rule(UNAVAILABLE, "check that the database server runs", "", _UNREACHABLE),
    _Rule("unknown_column", "{syntax}", r"no such column: (?P<name>.+)", (1054,)),
    _Rule("unknown_table", "{syntax}", r"no such table: (?P<name>.+)"),
    _Rule("forbidden_function", "{syntax}", r"(?:no such|use) function: (?P<name>.+)", (1128, 1305, 1630)),
    _Rule("forbidden_table", "{tables}", r"prohibited|not authorized", (1142, 1143, 1227, 1370, 1792)),
    *(_Rule("failed", *row) for row in _FAILED),
    _Rule(
        "syntax",
        "write the value itself in place of ? or :name",
        r"too many SQL variables|variable number must|[Ii]ncorrect number of bindings|supply a value for",
    ),
    _Rule(
        "too_complex",
        "select fewer rows, or substr() of long texts",
        r"too big|too complex|too many|too large|out of memory|stack overflow|too deep",
    ),
    _Rule("too_complex", "select fewer rows, or SUBSTRING() of long texts", "", _TOO_LARGE),
    _Rule("syntax", "{syntax}", r"syntax error|incomplete input|unrecognized token", (1064,)),
)
_OTHER = _Rule("failed", "{syntax}")
_PATTERNS = [(re.compile(rule.pattern), rule) for rule in _RULES if rule.pattern]
_BY_CODE = {code: rule for rule in _RULES for code in rule.codes}
_QUOTED = re.compile(r"'([^']*)'")


def from_sqlite(error: BaseException, sql: str, schema: Schema) -> QueryError:
    """Return the QueryError for an exception that sqlite3 raised on the statement `sql`."""
    message = str(error) or ("out of memory" if isinstance(error, MemoryError) else type(error).__name__)
    matches = ((pattern.search(message), rule) for pattern, rule in _PATTERNS)
    found, rule = next(((match, rule) for match, rule in matches if match), (None, _OTHER))
    name = found.groupdict().get("name") if found else None
    return QueryError(rule.kind, message, hint=_hint(rule, name, sql, schema, SQLITE))


def from_server(error: Exception, sql: str, schema: Schema) -> QueryError:
    """Return the QueryError for an exception that pymysql raised on the checked statement `sql`."""
    code, message = code_of(error), message_of(error)
    if isinstance(error, pymysql.err.InterfaceError):
        code = 2006
    elif isinstance(error, MemoryError):
        code = 1038
    rule = _BY_CODE.get(code, _OTHER)
    quoted = _QUOTED.search(message)
    name = quoted[1] if quoted and rule.kind in {"unknown_column", DATABASE_CHANGED} else None
    if rule.kind == DATABASE_CHANGED and name is not None:
        name = name.removeprefix(f"{schema.database}.")
        if name not in schema.columns:  # the table did not exist when the database was opened
            rule = rule._replace(kind="unknown_table")
    elif rule.kind == "forbidden_function":
        name = re.split(r"[.\s']+", message.replace("FUNCTION ", ""))[1]
    return QueryError(rule.kind, message, hint=_hint(rule, name, sql, schema, MYSQL))


def code_of(error: Exception) -> int:
    """Return the error number of a pymysql exception; 0 if the exception has none."""
    return error.args[0] if error.args and isinstance(error.args[0], int) else 0


def message_of(error: Exception) -> str:
    if len(error.args) > 1 and isinstance(error.args[1], str):
        return error.args[1]
    return str(error) or type(error).__name__


def unknown_quoted(name: str, tree: exp.Expr, schema: Schema) -> QueryError:
    """Return the QueryError for the double-quoted word `name`, which `tree` uses as a column but which is no column."""
    hint = f"{_nearest(name, tree, schema)}; write a text in single quotes: '{name}'"
    return QueryError("unknown_column", f"no such column: {name}", hint=hint)


def _hint(rule: _Rule, name: str | None, sql: str, schema: Schema, dialect: Dialect) -> str:
    if name is not None and rule.kind == "unknown_column":
        return _about_column(name, sql, schema, dialect)
    if name is not None and rule.kind == "unknown_table":
        return _about_table(name, sql, schema, dialect)
    if name is not None and rule.kind == "forbidden_function":
        return dialect.function_hint(fold(name))
    return rule.hint.replace("{tables}", schema.only_these).replace("{syntax}", dialect.syntax_hint(sql))


def _about_column(name: str, sql: str, schema: Schema, dialect: Dialect) -> str:
    """Return a hint for an unknown column, which may be a text whose quotes were forgotten."""
    try:
        tree = parse(clean(sql, dialect), dialect)
    except Exception:  # sqlglot raises exceptions of any type
        return schema.nearest_column(name)
    columns = tree.find_all(exp.Column)
    if dialect is SQLITE and any(column.name == name and is_value_position(column) for column in columns):
        return f"write a text in quotes: '{name}'"
    return _nearest(name, tree, schema)


def _nearest(name: str, tree: exp.Expr, schema: Schema) -> str:
    names = (schema.spelled(table.name) for table in tree.find_all(exp.Table))
    return schema.nearest_column(name, {table for table in names if table})


def _about_table(name: str, sql: str, schema: Schema, dialect: Dialect) -> str:
    if dialect is MYSQL and any(cte.alias == name for cte in parse(sql, MYSQL).find_all(exp.CTE)):
        # MariaDB 10.11 does not find a WITH query inside the WITH query of a subquery.
        return "write all WITH queries before the first SELECT"
    return schema.nearest_table(name)
