"""Define SQLite's SQL: the parser, the allowed functions, and the meaning of words in double quotes."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, ClassVar

from sqlglot import exp
from sqlglot.dialects.sqlite import SQLite
from sqlglot.parsers.sqlite import SQLiteParser

from sql_agent.database.dialect import WINDOW_FUNCTIONS, Dialect, StrictParser, words
from sql_agent.database.schema import ROW_IDS, Schema, fold
from sql_agent.errors import QueryError

AGGREGATES = words("avg count group_concat json_group_array json_group_object max min string_agg sum total")
# Left out: functions that load code or read files or versions; random functions, because a statement is run again to
# find out which cells the statement read.
SCALARS = words("""
    coalesce glob ifnull iif if instr length like likelihood likely lower ltrim nullif replace rtrim substr substring
    trim typeof unicode unlikely upper char concat concat_ws format hex octet_length printf quote soundex unhex abs acos
    acosh asin asinh atan atan2 atanh ceil ceiling cos cosh degrees exp floor ln log log10 log2 mod pi pow power radians
    round sign sin sinh sqrt tan tanh trunc date datetime julianday strftime time timediff unixepoch -> ->> json
    json_array json_array_length json_extract json_insert json_object json_patch json_quote json_remove json_replace
    json_set json_type json_valid
""")
FUNCTIONS = AGGREGATES | WINDOW_FUNCTIONS | SCALARS
# SQLite calls these functions for CURRENT_DATE, CURRENT_TIME and CURRENT_TIMESTAMP.
IMPLICIT_FUNCTIONS = frozenset({"current_date", "current_time", "current_timestamp"})

_COMPARISONS = (
    *(exp.EQ, exp.NEQ, exp.GT, exp.GTE, exp.LT, exp.LTE, exp.Like, exp.Glob, exp.Is, exp.In, exp.Between),
    *(exp.NullSafeEQ, exp.NullSafeNEQ),
)
# A double-quoted word of this form may be a misspelt column and not a text.
_LIKE_A_NAME = re.compile(r"[A-Za-z_]\w*", re.ASCII)


class _Parser(StrictParser, SQLiteParser):
    """SQLite's parser, which keeps the names of functions as they are written."""

    FUNCTIONS: ClassVar[dict[str, Any]] = {}
    FUNCTION_PARSERS: ClassVar[dict[str, Any]] = {"CAST": SQLiteParser.FUNCTION_PARSERS["CAST"]}


class SqliteDialect(Dialect):
    """SQLite's SQL, for hints and messages; SQLite's authorizer decides what may run."""

    name = "sqlite"
    title = "SQLite"
    grammar = SQLite()
    parser = _Parser
    aggregates = AGGREGATES
    functions = FUNCTIONS
    usual_functions = "use lower(), length(), substr(), instr(), count(), group_concat(), or LIKE"
    # A doubled quote is an escaped quote, except in brackets; an open comment runs to the end of the statement.
    parts = re.compile(
        r"""(?P<quoted>'(?:[^']|'')*'|"(?:[^"]|"")*"|`(?:[^`]|``)*`|\[[^\]]*\])"""
        r"""|(?P<comment>--[^\n]*|/\*.*?(?:\*/|\Z))"""
        r"""|(?P<open>['"`\[])""",
        re.DOTALL,
    )

    def check_nodes(self, text: str, tree: exp.Query, nodes: Sequence[exp.Expr]) -> None:
        # SQLite reads `IN x` as IN (SELECT ... FROM x).
        if any(isinstance(node, exp.In) and node.args.get("field") is not None for node in nodes):
            raise QueryError("syntax", "IN needs parentheses", hint="write IN ('a', 'b') or IN (SELECT ...)")


SQLITE = SqliteDialect()


def read_double_quotes(text: str, tree: exp.Query, schema: Schema) -> str | None:
    """Turn the double-quoted words of `tree` that are no columns into string literals; stop at a misspelt column.

    Returns the misspelt column, or None. SQLite reads every unknown "word" as a string. But where a column is expected,
    as in `SELECT "nme" FROM books`, a word that looks like a name is a misspelt column. `tree` is the syntax tree of
    the statement `text`.
    """
    nodes = list(tree.walk())
    tables = (schema.spelled(node.name) for node in nodes if isinstance(node, exp.Table))
    columns = {fold(column) for table in tables if table for column in schema.columns[table]}
    known = columns | {*ROW_IDS, *_aliases(nodes)}
    for node in nodes:
        if not isinstance(node, exp.Column) or node.table or fold(node.name) in known:
            continue
        name = node.this
        if not isinstance(name, exp.Identifier) or not name.quoted or text[name.meta["start"]] != '"':
            continue
        if _LIKE_A_NAME.fullmatch(node.name) and _names_a_column(node):
            return node.name
        node.replace(exp.Literal.string(node.name))
    return None


def _aliases(nodes: Iterable[exp.Expr]) -> Iterator[str]:
    for node in nodes:
        if isinstance(node, exp.Alias):
            yield fold(node.alias)
        elif isinstance(node, exp.TableAlias):
            yield from (fold(column.name) for column in node.columns)


def _names_a_column(node: exp.Expr) -> bool:
    """Return whether `node` is where a column is expected.

    Such places are an output, the left of a comparison, ORDER BY, GROUP BY, and the first argument of an aggregate.
    """
    node, parent = _without_parentheses(node)
    if isinstance(parent, _COMPARISONS):
        return node.arg_key == "this"
    if isinstance(parent, exp.Alias):
        node, parent = parent, parent.parent
    if isinstance(parent, exp.Select):
        return node.arg_key == "expressions" and parent.args.get("from_") is not None
    is_aggregate = isinstance(parent, exp.Anonymous) and fold(parent.name) in AGGREGATES
    return isinstance(parent, exp.Ordered | exp.Group | exp.Distinct) or (is_aggregate and not node.index)


def is_value_position(column: exp.Expr) -> bool:
    """Return whether `column` is where a value is expected.

    Such places are the right of a comparison, both sides of ||, and all but the first argument of a function.
    """
    node, parent = _without_parentheses(column)
    key = node.arg_key
    return (
        (isinstance(parent, _COMPARISONS) and key != "this")
        or isinstance(parent, exp.DPipe)
        or (isinstance(parent, exp.Anonymous) and (node.index or 0) > 0)
    )


def _without_parentheses(node: exp.Expr) -> tuple[exp.Expr, exp.Expr | None]:
    """Return two nodes: `node` or the outermost parentheses around `node`, and then the parent of the first."""
    parent = node.parent
    while isinstance(parent, exp.Paren | exp.Escape):
        node, parent = parent, parent.parent
    return node, parent
