"""Define the SQL dialect of an engine: functions, literals, and hints for those who write another engine's SQL."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import ClassVar, Never

from sqlglot import exp
from sqlglot.dialects.dialect import Dialect as Grammar
from sqlglot.parser import Parser
from sqlglot.tokenizer_core import Token

from sql_agent.database.schema import fold
from sql_agent.errors import QueryError


def words(text: str) -> frozenset[str]:
    return frozenset(text.split())


WINDOW_FUNCTIONS = words(
    "cume_dist dense_rank first_value lag last_value lead nth_value ntile percent_rank rank row_number"
)

_SQLITE, _MYSQL, _BOTH = "sqlite", "mysql", "sqlite and mysql"
_AGGREGATES = r"\b(?:GROUP_CONCAT|STRING_AGG|ARRAY_AGG|JSON_AGG|LISTAGG)"
# Engines, a case-insensitive pattern of foreign syntax, and the hint. The first pattern found in a statement decides.
_SYNTAX_HINTS = (
    (_BOTH, r"\bSELECT\s+(?:DISTINCT\s+|ALL\s+)?TOP\b", "write LIMIT 5 at the end in place of TOP 5"),
    (_SQLITE, r"\bFETCH\s+(?:FIRST|NEXT)\b", "write LIMIT 5 at the end in place of FETCH FIRST"),
    (_MYSQL, r"\bINTO\b", "leave INTO out: rows are only read"),
    (_SQLITE, r"::", "write CAST(x AS TEXT) in place of x::text"),
    (_MYSQL, r"::", "write CAST(x AS CHAR) in place of x::text"),
    (_SQLITE, r"\bEXTRACT\s*\(", "write strftime('%Y', x) in place of EXTRACT(YEAR FROM x)"),
    (_BOTH, r"\bDISTINCT\s+ON\b", "write GROUP BY in place of DISTINCT ON"),
    (_SQLITE, r"\bSIMILAR\s+TO\b|\bRLIKE\b|\s~\*?\s", "write LIKE '%word%'"),
    (_MYSQL, r"\bSIMILAR\s+TO\b|\s~\*?\s|\bGLOB\b", "write LIKE '%word%'"),
    (_BOTH, r"\bILIKE\b", "write LIKE, which already ignores case"),
    (_BOTH, r"\bQUALIFY\b", "put the window function into a subquery, and the condition into the outer WHERE"),
    (_SQLITE, r"\b(?:FOR\s+(?:UPDATE|SHARE)|TABLESAMPLE|LATERAL)\b", "leave out FOR UPDATE, TABLESAMPLE and LATERAL"),
    (_SQLITE, r"\bINTERVAL\b", "write date(x, '+1 day') in place of INTERVAL"),
    (_MYSQL, r"\bNULLS\s+(?:FIRST|LAST)\b", "write ORDER BY x IS NULL, x"),
    (_MYSQL, r"\bFULL\s+(?:OUTER\s+)?JOIN\b", "combine a LEFT JOIN and a RIGHT JOIN by UNION"),
    (_MYSQL, r"\bFILTER\s*\(", "write SUM(CASE WHEN ... THEN 1 ELSE 0 END)"),
    (_SQLITE, r"\b(?:ROLLUP|CUBE|GROUPING\s+SETS)\b", "write one SELECT for each level, joined with UNION ALL"),
    (_MYSQL, r"\b(?:CUBE|GROUPING\s+SETS)\b", "write GROUP BY x WITH ROLLUP, or one SELECT for each level"),
    (
        _SQLITE,
        r"(?<!UNION\s)(?<!EXCEPT\s)(?<!INTERSECT\s)\b(?:ANY|ALL|SOME)\s*\(\s*SELECT\b",
        "write IN (SELECT ...), or compare with (SELECT max(x) ...)",
    ),
    (
        _SQLITE,
        r"\b(?:UNION(?:\s+ALL)?|EXCEPT|INTERSECT)\s*\(\s*(?:SELECT|WITH)\b",
        "leave out the parentheses: SELECT ... UNION ALL SELECT ...",
    ),
    (_BOTH, r"\bARRAY\s*\[|\bUNNEST\s*\(", "write IN ('a', 'b'): there are no arrays"),
    (_BOTH, r"\b(?:PIVOT|UNPIVOT)\b", "write SUM(CASE WHEN ... THEN 1 ELSE 0 END) for each column"),
    (
        _SQLITE,
        r"\b(?:TRIM|SUBSTRING|POSITION)\s*\([^()]*\b(?:FROM|IN|FOR)\b",
        "write trim(x, 'a'), substr(x, 1, 3), instr(x, 'a')",
    ),
    (_MYSQL, r"\bAS\s+(?:TEXT|VARCHAR|INT|INTEGER|REAL|FLOAT)\b", "write CAST(x AS CHAR), SIGNED or DECIMAL(10,2)"),
    (_BOTH, r"\bLIMIT\s+\S+\s+BY\b|\bROWNUM\b", "write LIMIT 5 at the end"),
    (
        _MYSQL,
        r"\bFROM\s*\(.*\)\s*(?:$|WHERE|GROUP|ORDER|LIMIT)",
        "give the subquery in FROM a name: FROM (SELECT ...) AS t",
    ),
    (
        _SQLITE,
        _AGGREGATES + r"\s*\((?:[^()]|\([^()]*\))*\bORDER\s+BY\b",
        "write SELECT group_concat(x, ', ') FROM (SELECT x FROM ... ORDER BY y)",
    ),
    (_BOTH, r"\bWHERE\b.*\bWHERE\b", "write AND in place of a second WHERE"),
    (_BOTH, r"\bORDER\s+BY\b.*\b(?:WHERE|GROUP\s+BY)\b", "write WHERE, then GROUP BY, then ORDER BY, then LIMIT"),
    (_BOTH, r"\bGROUP\s+BY\b.*\bWHERE\b", "write WHERE before GROUP BY, or HAVING after GROUP BY"),
    (_MYSQL, r'(?:\bFROM|\bJOIN|\bSELECT|,)\s*"', "write names without quotes or in backticks: `name`"),
)
_PATTERNS = [(engines, re.compile(pattern, re.IGNORECASE), hint) for engines, pattern, hint in _SYNTAX_HINTS]


def from_items(select: exp.Expr) -> list[exp.Expr]:
    """Return the tables and subqueries of a SELECT's FROM clause."""
    clauses = (select.args.get("from_"), *(select.args.get("joins") or ()))
    return [clause.this for clause in clauses if clause is not None]


class StrictParser:
    """A mixin for sqlglot's parsers that refuses statements which sqlglot would leave unparsed with only a warning."""

    def _warn_unsupported(self) -> Never:
        raise QueryError("not_select", "a statement inside the statement is not allowed", hint="write one SELECT")


class Dialect:
    """The SQL dialect of an engine; each engine has one instance.

    Statements may call only `functions`. Names of functions are in lower case.
    """

    name: ClassVar[str]  # sqlglot's name of the dialect
    title: ClassVar[str]  # shown to people and models
    grammar: ClassVar[Grammar]
    parser: ClassVar[type[Parser]]  # keeps the names of functions as written
    aggregates: ClassVar[frozenset[str]]
    functions: ClassVar[frozenset[str]]
    function_hints: ClassVar[Mapping[str, str]]  # maps a hint to the functions that it is about, separated by blanks
    usual_functions: ClassVar[str]  # the hint for any other function
    # Matches a quoted text, a comment, or a quote that is never closed, as the group `quoted`, `comment` or `open`.
    parts: ClassVar[re.Pattern[str]]

    def check_text(self, text: str, bare: str) -> None:
        """Raise QueryError if `text` contains characters that the engine and sqlglot would read differently.

        `text` is a statement without comments. `bare` is `text` with the content of all quotes masked.
        """

    def check_tokens(self, text: str, tokens: Sequence[Token]) -> None:
        """Raise QueryError if the engine would split `text` into other tokens than sqlglot's `tokens`."""

    def check_nodes(self, text: str, tree: exp.Query, nodes: Sequence[exp.Expr]) -> None:
        """Raise QueryError if the dialect forbids one of `nodes`: the nodes of `tree`, the syntax tree of `text`."""

    def table_key(self, name: str) -> str:
        """Return the name of a table or WITH query in the form in which the engine compares names."""
        return fold(name)

    def text_literal(self, text: str) -> str:
        return "'" + text.replace("'", "''") + "'"

    def joined(self, *parts: str) -> str:
        """Return the expression that concatenates the expressions `parts`."""
        return " || ".join(parts)

    def parse(self, text: str) -> list[exp.Expr | None]:
        """Return one syntax tree for each statement in `text`. Raises ParseError, TokenError or QueryError."""
        tokens = self.grammar.tokenize(text)
        self.check_tokens(text, tokens)
        trees: list[exp.Expr | None] = self.parser(dialect=self.grammar).parse(tokens, text)
        return trees

    def called(self, node: exp.Expr) -> str | None:
        """Return the name of the function that `node` calls, in lower case; None if `node` is not a call."""
        if isinstance(node, exp.Anonymous) and not isinstance(node.parent, exp.Table):
            return fold(node.name)
        return None

    def function_hint(self, name: str) -> str:
        """Return a hint that names a replacement for the function `name`, which is in lower case."""
        found = (hint for hint, functions in self.function_hints.items() if name in functions.split())
        return next(found, self.usual_functions)

    def syntax_hint(self, sql: str) -> str:
        """Return a hint for the statement `sql`, which the engine cannot parse."""
        flat = " ".join(sql.split())
        found = (hint for engines, pattern, hint in _PATTERNS if self.name in engines and pattern.search(flat))
        return next(found, f"write one SELECT statement in {self.title}'s dialect")
