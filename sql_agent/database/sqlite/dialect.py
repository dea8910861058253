"""Define SQLite's SQL: how sqlglot parses it, its functions, and what to write in place of other dialects."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any, ClassVar

from sqlglot import exp
from sqlglot.dialects.sqlite import SQLite
from sqlglot.parsers.sqlite import SQLiteParser

from sql_agent.database.dialect import Dialect
from sql_agent.database.schema import Schema, fold
from sql_agent.database.sqlite import allowed
from sql_agent.database.sqlite.double_quotes import ROW_IDS, with_real_texts
from sql_agent.database.sqlite.other_dialects import hint_for
from sql_agent.errors import QueryError

_SQLGLOT = SQLite()


class _Parser(SQLiteParser):
    """SQLite's parser with every function kept as it was written, so that the list of functions sees its own names."""

    FUNCTIONS: ClassVar[dict[str, Any]] = {}
    FUNCTION_PARSERS: ClassVar[dict[str, Any]] = {"CAST": SQLiteParser.FUNCTION_PARSERS["CAST"]}

    def _warn_unsupported(self) -> None:
        """Called where sqlglot would log a warning and pass the text through unread."""
        raise QueryError("not_select", "a statement inside the statement is not allowed", hint="write one SELECT")


class SqliteDialect(Dialect):
    """Describes SQLite's SQL. SQLite's authorizer judges every statement too, so this refuses only what misleads."""

    name = "sqlite"
    title = "SQLite"
    aggregates = allowed.AGGREGATES
    window_functions = allowed.WINDOW_FUNCTIONS
    functions = allowed.FUNCTIONS
    function_hints = allowed.FUNCTION_HINTS
    usual_functions = "use lower(), length(), substr(), instr(), count(), group_concat(), or LIKE"
    row_ids = ROW_IDS
    # SQLite's own rules: quotes double to escape (brackets cannot), comments do not nest, an open one runs to the end.
    parts = re.compile(
        r"""(?P<quoted>'(?:[^']|'')*'|"(?:[^"]|"")*"|`(?:[^`]|``)*`|\[[^\]]*\])"""
        r"""|(?P<comment>--[^\n]*|/\*.*?(?:\*/|\Z))"""
        r"""|(?P<open>['"`\[])""",
        re.DOTALL,
    )

    def parse(self, text: str) -> list[exp.Expr | None]:
        """Return the trees of the statements in `text`."""
        return _Parser(dialect=_SQLGLOT).parse(_SQLGLOT.tokenize(text), text)

    def check_text(self, text: str, bare: str) -> None:
        """Accept every text, because what is left to check here is the parser's and SQLite's own."""

    def check_nodes(self, text: str, tree: exp.Query, nodes: Sequence[exp.Expr]) -> None:
        """Raise QueryError for IN without parentheses, which SQLite reads as a table."""
        for node in nodes:
            if isinstance(node, exp.In) and node.args.get("field") is not None:
                raise QueryError("syntax", "IN needs parentheses", hint="write IN ('a', 'b') or IN (SELECT ...)")

    def runnable(self, text: str, nodes: Sequence[exp.Expr], schema: Schema) -> str:
        """Return `text` with each double-quoted word turned into a text or a name."""
        return with_real_texts(text, nodes, schema)

    def syntax_hint(self, text: str) -> str:
        """Return what to write in place of another database's dialect."""
        return hint_for(text)

    def table_key(self, name: str) -> str:
        """Return the name in lower case."""
        return fold(name)

    def text_literal(self, text: str) -> str:
        """Return `text` in single quotes, which double to escape."""
        return "'" + text.replace("'", "''") + "'"

    def joined(self, *parts: str) -> str:
        """Return `a || b`."""
        return " || ".join(parts)


SQLITE = SqliteDialect()
