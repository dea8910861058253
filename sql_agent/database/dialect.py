"""Define the SQL dialect of an engine: functions, literals, and hints for those who write another engine's SQL."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Sequence
from pathlib import Path
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

_HINTS = tomllib.loads(Path(__file__).with_name("hints.toml").read_text("utf-8"))
_PATTERNS = [(engines, re.compile(pattern, re.IGNORECASE), hint) for engines, pattern, hint in _HINTS["syntax"]]


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
        found = (hint for hint, functions in _HINTS["functions"][self.name].items() if name in functions.split())
        return next(found, self.usual_functions)

    def syntax_hint(self, sql: str) -> str:
        """Return a hint for the statement `sql`, which the engine cannot parse."""
        flat = " ".join(sql.split())
        found = (hint for engines, pattern, hint in _PATTERNS if self.name in engines and pattern.search(flat))
        return next(found, f"write one SELECT statement in {self.title}'s dialect")
