"""Define the SQL of MySQL and MariaDB: the parser, the allowed functions, and the allowed types of nodes.

The servers have no authorizer like SQLite's. Therefore a statement may contain only listed types of nodes, and sqlglot
must agree with the server on where quotes end.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any, ClassVar

from sqlglot import exp
from sqlglot.dialects.mysql import MySQL
from sqlglot.generators.mysql import MySQLGenerator
from sqlglot.parsers.mysql import MySQLParser
from sqlglot.tokenizer_core import Token, TokenType

from sql_agent.database.counterfactual import without_database
from sql_agent.database.dialect import WINDOW_FUNCTIONS, Dialect, StrictParser, words
from sql_agent.database.guard import Checked
from sql_agent.database.mysql.server_cost import MAX_GROWTH, expansion, text_growth
from sql_agent.database.schema import Schema
from sql_agent.errors import QueryError

# Without any_value(): MariaDB lacks it and would call a stored function of that name.
AGGREGATES = words("""
    avg bit_and bit_or bit_xor count group_concat max min std stddev stddev_pop stddev_samp sum var_pop var_samp
    variance
""")
# Left out: functions that read files, versions, users or settings; that wait, lock or write; random functions; and
# those that make a text of any length from a number (repeat, space, lpad, rpad), because nothing limits the server's
# memory.
SCALARS = words("""
    abs acos asin atan atan2 ceil ceiling cos cot crc32 degrees exp floor ln log log10 log2 mod pi pow power radians
    round sign sin sqrt tan truncate ascii bin bit_count bit_length char char_length character_length concat concat_ws
    conv elt field find_in_set format hex insert instr lcase left length locate lower ltrim mid oct octet_length ord
    quote replace reverse right rtrim soundex strcmp substr substring substring_index trim ucase unhex upper coalesce
    greatest if ifnull isnull least nullif nvl date date_add adddate addtime date_format date_sub subdate subtime
    datediff day dayname dayofmonth dayofweek dayofyear from_days from_unixtime hour last_day makedate maketime
    microsecond minute month monthname now curdate current_date curtime current_time current_timestamp localtime
    localtimestamp period_add period_diff quarter sec_to_time second str_to_date time time_format time_to_sec timediff
    timestamp timestampadd timestampdiff to_days to_seconds unix_timestamp utc_date utc_time utc_timestamp week weekday
    weekofyear year yearweek json_array json_contains json_extract json_length json_object json_type json_unquote
    json_valid
""")
FUNCTIONS = AGGREGATES | WINDOW_FUNCTIONS | SCALARS

MAX_JOINED = 20  # maximum number of tables of a FROM clause, because no time limit ends the planning of a join
MAX_TABLES = 61  # the server's own maximum for a statement; a WITH query counts each time it is used
MAX_COPIES = 20_000  # maximum for one column in one expression of the expanded statement
MAX_PARSED = 20_000  # maximum number of parsed queries; MariaDB 10.11 parses a million in 0.25 s
# The types of nodes that a statement may contain.
_NODES = frozenset(
    getattr(exp, name)
    for name in words("""
        Select Union Intersect Except Subquery With CTE From Join Where Group Having Order Ordered Limit Offset Values
        Window WindowSpec Rollup Fetch LimitOptions Column Identifier Alias TableAlias Table IndexTableHint Literal Null
        Boolean HexString BitString Star Tuple Interval Var And Or Xor Not Paren Exists In Between Is EQ NEQ GT GTE LT
        LTE NullSafeEQ Like Escape RegexpLike Add Sub Mul Div IntDiv Mod Neg DPipe BitwiseAnd BitwiseOr BitwiseXor
        BitwiseNot BitwiseLeftShift BitwiseRightShift Anonymous Cast DataType DataTypeParam Trim Substring Extract
        StrPosition GroupConcat Distinct CurrentDate CurrentTime CurrentTimestamp Localtime Localtimestamp Case If
        Collate Soundex CharacterSet Any All Concat JSONExtract JSONExtractScalar JSONPath JSONPathRoot JSONPathKey
        JSONPathSubscript
    """)
)
_SPECIAL = re.compile(r"[@{}\\:?]|/\*!?|--|\bINTO\b", re.IGNORECASE)
_SPECIAL_ERRORS = {
    "@": ("not_select", "variables are not allowed", "write the value itself, or a subquery"),
    "\\": ("syntax", "a backslash is outside quotes", "write backslashes inside quotes only"),
    "/*": ("syntax", "a comment is not closed, or the server would execute it", "leave the comment out"),
    "/*!": ("not_select", "a comment that the server would execute is not allowed", "leave the comment out"),
    "--": ("not_select", "-- begins a comment only if a blank follows", "write a blank after --, or - -1 for -(-1)"),
    "INTO": ("not_select", "INTO is not allowed", "leave INTO out"),
}
# Functions without parentheses that sqlglot parses as columns.
_READ_AS_FUNCTIONS = frozenset({"CURRENT_ROLE"})
# A pattern without repetition, whose matching time grows only with the length of the text.
_PLAIN_PATTERN = re.compile(r"[^\\*+?{}()]*", re.DOTALL)
_KEPT_PARSERS = ("CAST", "CONVERT", "GROUP_CONCAT", "TRIM", "SUBSTRING", "SUBSTR", "EXTRACT", "POSITION")


class _Parser(StrictParser, MySQLParser):
    """MySQL's parser, which keeps the names of functions as they are written and reads || as concatenation."""

    FUNCTIONS: ClassVar[dict[str, Any]] = {}
    FUNCTION_PARSERS: ClassVar[dict[str, Any]] = {name: MySQLParser.FUNCTION_PARSERS[name] for name in _KEPT_PARSERS}
    DISJUNCTION: ClassVar[dict[Any, Any]] = {
        token: node for token, node in MySQLParser.DISJUNCTION.items() if token is not TokenType.DPIPE
    }
    FUNC_TOKENS: ClassVar[set[Any]] = MySQLParser.FUNC_TOKENS - {TokenType.VALUES}
    FACTOR: ClassVar[dict[Any, Any]] = {**MySQLParser.FACTOR, TokenType.DPIPE: exp.DPipe}


class _Grammar(MySQL):
    """MySQL's grammar, which writes REGEXP where sqlglot writes REGEXP_LIKE(), a function that MariaDB lacks."""

    class Generator(MySQLGenerator):
        TRANSFORMS: ClassVar[dict[Any, Any]] = {
            **MySQLGenerator.TRANSFORMS,
            exp.RegexpLike: lambda self, node: self.binary(node, "REGEXP"),
        }


class MysqlDialect(Dialect):
    """The SQL of MySQL and MariaDB under the sql_mode that our sessions set."""

    name = "mysql"
    title = "MySQL"
    grammar = _Grammar()
    parser = _Parser
    aggregates = AGGREGATES
    functions = FUNCTIONS
    usual_functions = "use LOWER(), CHAR_LENGTH(), SUBSTRING(), INSTR(), CONCAT(), COUNT(), GROUP_CONCAT(), or LIKE"
    # A doubled quote or, except in backticks, a backslash escapes a quote; "--" needs a blank behind it.
    parts = re.compile(
        r"""(?P<quoted>'(?:[^'\\]|\\.|'')*+'|"(?:[^"\\]|\\.|"")*+"|`(?:[^`]|``)*+`)"""
        r"""|(?P<comment>--(?=\s|\Z)[^\n]*|\#[^\n]*|/\*(?!M?!).*?\*/)"""
        r"""|(?P<open>['"`])""",
        re.DOTALL,
    )

    def check_text(self, text: str, bare: str) -> None:
        if special := _SPECIAL.search(bare):
            found = special.group().upper()
            other = ("syntax", f"{found} is not allowed outside quotes", MYSQL.syntax_hint(text))
            kind, message, hint = _SPECIAL_ERRORS.get(found, other)
            raise QueryError(kind, message, hint=hint)

    def check_tokens(self, text: str, tokens: Sequence[Token]) -> None:
        ours = {match.end() - 1 for match in self.parts.finditer(text) if match["quoted"]}
        theirs = {token.end for token in tokens if text[token.end] in "'\"`"}
        if ours != theirs:
            raise QueryError("syntax", "it is unclear where quotes end", hint="write '' for one quote in a text")

    def check_nodes(self, text: str, tree: exp.Query, nodes: Sequence[exp.Expr]) -> None:
        for node in nodes:
            if type(node) not in _NODES:
                raise _refused(node, text)
            if isinstance(node, exp.RegexpLike):
                _check_pattern(node)
            if isinstance(node, exp.Column) and node.name.upper() in _READ_AS_FUNCTIONS and not node.this.quoted:
                raise QueryError("forbidden_function", f"{node.name} is not allowed", hint="write another expression")
            if isinstance(node, exp.Select) and len(node.args.get("joins") or ()) >= MAX_JOINED:
                raise QueryError("too_complex", f"more than {MAX_JOINED} tables are joined", hint="join fewer tables")
        tables, copies, parsed = expansion(tree)
        if tables > MAX_TABLES:
            raise QueryError("too_complex", f"more than {MAX_TABLES} tables are read", hint="read fewer tables")
        if parsed > MAX_PARSED:
            raise QueryError("too_complex", "WITH queries are nested too deeply", hint="use one WITH")
        if copies > MAX_COPIES:
            raise QueryError("too_complex", "columns of subqueries are used too often", hint="use fewer subqueries")
        if text_growth(tree) > MAX_GROWTH:
            raise QueryError("too_complex", "a concatenated text may grow too long", hint="concatenate fewer texts")

    def runnable(self, checked: Checked, schema: Schema) -> str:
        """Return the statement without the database's name before columns, and remove the name from the tree, too.

        Such a name together with JOIN ... USING made MariaDB 10.11.19 crash. Raises QueryError for the name of another
        database.
        """
        columns = [node for node in checked.tree.walk() if isinstance(node, exp.Column) and node.args.get("db")]
        for column in columns:
            if column.db != schema.database or column.args.get("catalog"):
                message = f"no such column: {column.sql(self.name)}"
                raise QueryError("unknown_column", message, hint="write table.column")
        text = without_database(checked.sql, columns)
        for column in columns:  # hints run variants of the tree
            column.set("db", None)
        return text

    def table_key(self, name: str) -> str:
        return name  # on many servers, the names of tables are case-sensitive

    def text_literal(self, text: str) -> str:
        return super().text_literal(text.replace("\\", "\\\\"))

    def joined(self, *parts: str) -> str:
        return f"CONCAT({', '.join(parts)})"

    def called(self, node: exp.Expr) -> str | None:
        return "group_concat" if isinstance(node, exp.GroupConcat) else super().called(node)


def _refused(node: exp.Expr, text: str) -> QueryError:
    if isinstance(node, exp.Lock):
        return QueryError("not_select", "rows cannot be locked", hint="leave out FOR UPDATE or LOCK IN SHARE MODE")
    what = type(node).__name__
    if isinstance(node, exp.Func):
        name = node.sql_name().lower()
        return QueryError("forbidden_function", f"{name}() is not allowed", hint=MYSQL.function_hint(name))
    return QueryError("not_select", f"{what.upper()} is not allowed", hint=MYSQL.syntax_hint(text))


def _check_pattern(node: exp.RegexpLike) -> None:
    pattern = node.expression
    if not (isinstance(pattern, exp.Literal) and pattern.is_string and _PLAIN_PATTERN.fullmatch(pattern.name)):
        message = "REGEXP takes a text in quotes, without * + ? { } ( ) \\ in the text"
        raise QueryError("forbidden_function", message, hint="write REGEXP 'one|other', or LIKE '%word%'")


MYSQL = MysqlDialect()
