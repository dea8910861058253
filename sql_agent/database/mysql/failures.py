"""Turn what a server says about a failed statement into a kind and a hint that a model can act on."""

from __future__ import annotations

import re

import pymysql
from sqlglot import exp

from sql_agent.database.answers import DATABASE_CHANGED
from sql_agent.database.guard import parse
from sql_agent.database.mysql.dialect import MYSQL
from sql_agent.database.schema import Schema, fold
from sql_agent.errors import QueryError

LOST = frozenset({1053, 1927, 2006, 2013, 2055, 4031})  # the connection ended; the statement may be sent again
# No connection can be made: none is left, access denied, no such database, host blocked, no TLS, account locked, …
UNREACHABLE = frozenset(
    {1040, 1044, 1045, 1049, 1129, 1130, 1203, 1226, 2002, 2003, 2005, 2026, 3118, 3159, 4151, *LOST}
)
_KINDS = {
    "timeout": frozenset({1317, 1969, 3024}),
    "unavailable": UNREACHABLE,
    "too_complex": frozenset(
        {3, 126, 1021, 1037, 1038, 1041, 1104, 1114, 1116, 1117, 1290, 1301, 1436, 1712, 4006, 4065}
    ),
    "syntax": frozenset({1064}),
    "forbidden_table": frozenset({1142, 1143, 1227, 1370, 1792}),
    DATABASE_CHANGED: frozenset({1146}),
    "forbidden_function": frozenset({1128, 1305, 1630}),
    "unknown_column": frozenset({1054}),
}
_KINDS_HINTS = {
    "timeout": "read fewer rows: add WHERE and LIMIT, join fewer tables",
    "unavailable": "look whether the database server runs",
    "too_complex": "select less: fewer rows, SUBSTRING() of long texts",
    "forbidden_table": "{tables}",
    DATABASE_CHANGED: "the table was removed: start again",
}
_QUOTED = re.compile(r"'([^']*)'")
_HINTS = {
    1052: "write the table's name or alias before the column",
    1055: "write every selected column in GROUP BY, or MAX() around it",
    1056: "group by a column",
    1060: "give the columns of the subquery different names",
    1066: "give each table an alias of its own",
    1111: "write the condition in HAVING after GROUP BY, or compare with (SELECT ...)",
    1139: "write LIKE '%word%'",
    1140: "add GROUP BY, or MAX() around the column",
    1191: "write LIKE '%word%'",
    1205: "another program writes to the database: try again",
    1213: "another program writes to the database: try again",
    1222: "give every SELECT of the UNION as many columns",
    1235: "write the LIMIT in a subquery in FROM",
    1241: "compare as many values as the subquery has columns",
    1242: "write IN (SELECT ...), or LIMIT 1 in the subquery",
    1247: "use the alias in ORDER BY or HAVING, or put the SELECT into FROM",
    1248: "give the subquery in FROM a name: FROM (SELECT ...) AS t",
    1250: "order by the column's name without its table",
    1267: "leave COLLATE out",
    1273: "leave COLLATE out",
    1582: "give the function as many values as it takes",
    1690: "write numbers that are not so large",
    4015: "put the window function into a subquery",
}


def from_server(error: Exception, sql: str, schema: Schema) -> QueryError:
    """Return the QueryError for an exception of pymysql on the checked statement `sql`; the server's text is kept."""
    code, message = code_of(error), message_of(error)
    if isinstance(error, pymysql.err.InterfaceError):
        return QueryError("unavailable", message, hint=_KINDS_HINTS["unavailable"])
    if isinstance(error, MemoryError):
        return QueryError("too_complex", message, hint=_KINDS_HINTS["too_complex"])
    kind = next((kind for kind, codes in _KINDS.items() if code in codes), "failed")
    if kind == "unknown_column" and (found := _QUOTED.search(message)):
        return QueryError(kind, message, hint=_about_column(found[1], sql, schema))
    if kind == DATABASE_CHANGED and (found := _QUOTED.search(message)):
        name = found[1].removeprefix(f"{schema.database}.")
        if name not in schema.columns:  # so it is the statement's fault
            return QueryError("unknown_table", message, hint=_about_table(name, sql, schema))
    if kind == "forbidden_function":
        name = re.split(r"[.\s']+", message.replace("FUNCTION ", ""))[1]
        return QueryError(kind, message, hint=MYSQL.function_hint(fold(name)))
    hint = _HINTS.get(code) or _KINDS_HINTS.get(kind, "").format(tables=schema.only_these) or MYSQL.syntax_hint(sql)
    return QueryError(kind, message, hint=hint)


def code_of(error: Exception) -> int:
    """Return the number of an error of pymysql; 0 when it has none."""
    return error.args[0] if error.args and isinstance(error.args[0], int) else 0


def message_of(error: Exception) -> str:
    """Return the text of an error of pymysql."""
    if len(error.args) > 1 and isinstance(error.args[1], str):
        return error.args[1]
    return str(error) or type(error).__name__


def _about_table(name: str, sql: str, schema: Schema) -> str:
    if any(cte.alias == name for cte in parse(sql, MYSQL).find_all(exp.CTE)):
        # MariaDB 10.11 does not find it inside the WITH query of a subquery.
        return "write all WITH queries before the first SELECT"
    return schema.nearest_table(name)


def _about_column(name: str, sql: str, schema: Schema) -> str:
    names = (schema.spelled(table.name) for table in parse(sql, MYSQL).find_all(exp.Table))
    return schema.nearest_column(name, {table for table in names if table})
