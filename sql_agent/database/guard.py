"""Decide whether a statement may run: one SELECT over the tables of the schema, made of known parts only."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any, ClassVar

from sqlglot import exp
from sqlglot.dialects.sqlite import SQLite
from sqlglot.errors import ParseError, TokenError
from sqlglot.parsers.sqlite import SQLiteParser

from sql_agent.database import allowed
from sql_agent.database.dialects import hint_for
from sql_agent.database.lexical import clean
from sql_agent.database.schema import ROWID_NAMES, Schema, fold
from sql_agent.database.scope import Scopes
from sql_agent.errors import QueryError

KINDS = {
    "empty": "there is no statement",
    "too_long": "the text is longer than allowed",
    "too_complex": "too deep, too many tables, recursive, or a value grew too large",
    "syntax": "not SQL that SQLite can read",
    "not_select": "something else than SELECT or WITH ... SELECT",
    "multiple_statements": "more than one statement",
    "forbidden_table": "a table that is not part of the schema",
    "forbidden_function": "a function that is not on the list of harmless ones",
    "unknown_table": "a table that the database does not have",
    "unknown_column": "a column that the database does not have",
    "timeout": "the deadline passed and the statement was interrupted",
    "database_changed": "the database's file is not the one that was opened: replaced, changed, damaged or removed",
    "failed": "SQLite refused the statement for another reason",
    "malformed_call": 'the tool was called with arguments that are not {"sql": text}',
}

_COMPARISONS = (exp.EQ, exp.NEQ, exp.GT, exp.GTE, exp.LT, exp.LTE, exp.Like, exp.Glob, exp.Is)
_NULL_SAFE = (exp.NullSafeEQ, exp.NullSafeNEQ)
_STATEMENTS = (
    *(exp.Insert, exp.Update, exp.Delete, exp.Merge, exp.Create, exp.Drop, exp.Alter, exp.Command, exp.Pragma),
    *(exp.Attach, exp.Detach, exp.Transaction, exp.Commit, exp.Rollback, exp.Analyze, exp.Describe, exp.Into),
)
_ASKS_FOR_SCHEMA = re.compile(r"\s*(?:PRAGMA|SHOW|DESC|DESCRIBE)\b", re.IGNORECASE)
# What looks like a column's name in double quotes is a wrong one rather than a text.
_LIKE_A_NAME = re.compile(r"[A-Za-z_]\w*", re.ASCII)


@dataclass(frozen=True)
class CheckedQuery:
    """A statement that may run. `from_tables`: an output column comes from a table of the schema or counts its rows.

    `sql` is the statement without comments, with double-quoted texts turned into real ones. `ctes` are the names
    of its WITH queries.
    """

    sql: str
    from_tables: bool
    ctes: frozenset[str]


class _Parser(SQLiteParser):
    """SQLite's parser with every function kept as it was written, so that the list of functions sees its own names."""

    FUNCTIONS: ClassVar[dict[str, Any]] = {}
    FUNCTION_PARSERS: ClassVar[dict[str, Any]] = {"CAST": SQLiteParser.FUNCTION_PARSERS["CAST"]}

    def _warn_unsupported(self) -> None:
        """Called where sqlglot would log a warning and pass the text through unread."""
        raise _not_select("a statement inside the statement")


_DIALECT = SQLite()


def check(sql: str, schema: Schema) -> CheckedQuery:
    """Return the statement to run in place of `sql`. Raises QueryError with one of KINDS and a hint."""
    if _ASKS_FOR_SCHEMA.match(sql):
        message = f"the statement starts with {sql.split(maxsplit=1)[0].upper()}"
        raise QueryError("not_select", message, hint=schema.listing)
    text = clean(sql)
    try:
        tree = parse(text)
        nodes = list(tree.walk())
        _check_nodes(nodes)
        scopes = Scopes(schema)
        relation = scopes.resolve(tree)
    except RecursionError:
        raise QueryError("too_complex", "the statement is nested too deeply", hint="simplify the statement") from None
    return CheckedQuery(_with_real_texts(text, nodes, schema), relation.from_tables, frozenset(scopes.ctes))


def parse(text: str) -> exp.Query:
    """Return the tree of one SELECT without comments, as of a CheckedQuery. Raises QueryError."""
    try:
        trees = _Parser(dialect=_DIALECT).parse(_DIALECT.tokenize(text), text)
    except ParseError as error:
        raise _syntax_error(error, text) from None
    except TokenError:
        raise QueryError("syntax", "the statement cannot be split into words", hint="check its quotes") from None
    if len(trees) != 1 or not isinstance(trees[0], exp.Select | exp.SetOperation):
        raise _not_select(type(trees[0]).__name__ if trees else "nothing")
    return trees[0]


def _syntax_error(error: ParseError, text: str) -> QueryError:
    details = error.errors[0] if error.errors else {}
    near = str(details.get("highlight") or "").strip()
    description = str(details.get("description") or "").rstrip(".")
    if not description or "<" in description:  # sqlglot shows its own Python objects
        description = "something is missing"
    place = f" near {near[:60]!r}" if near else ""
    return QueryError("syntax", f"{description}{place}", hint=hint_for(text))


def _not_select(what: str) -> QueryError:
    return QueryError(
        "not_select", f"{what.upper()} is not allowed", hint="only SELECT, or WITH followed by SELECT, is allowed"
    )


def _check_nodes(nodes: list[exp.Expr]) -> None:
    for node in nodes:
        if isinstance(node, _STATEMENTS):
            raise _not_select(type(node).__name__)
        if isinstance(node, exp.Anonymous) and not isinstance(node.parent, exp.Table):
            name = fold(node.name)
            if name not in allowed.FUNCTIONS:
                message = f"the function {name}() is not allowed"
                raise QueryError("forbidden_function", message, hint=allowed.function_hint(name))
        elif isinstance(node, exp.In) and node.args.get("field") is not None:
            raise QueryError("syntax", "IN needs parentheses", hint="write IN ('a', 'b') or IN (SELECT ...)")


def _with_real_texts(text: str, nodes: list[exp.Expr], schema: Schema) -> str:
    """Replace each double-quoted word that stands for a column.

    SQLite reads an unknown "word" as a text, silently. Where a value is expected, or where it does not look like a
    name, we keep that (as 'word'); everywhere else it becomes `word`, which SQLite reports when there is no such
    column.
    """
    quoted = [node for node in nodes if isinstance(node, exp.Column) and _is_double_quoted(node, text)]
    if not quoted:
        return text
    known = schema.column_names | ROWID_NAMES | _aliases(nodes)
    for column in sorted(quoted, key=lambda node: -int(node.this.meta["start"])):
        name = column.name
        is_text = is_value_position(column) or not _LIKE_A_NAME.fullmatch(name)
        if is_text and not column.table and fold(name) not in known:
            replacement = "'" + name.replace("'", "''") + "'"
        else:
            replacement = "`" + name.replace("`", "``") + "`"
        text = text[: column.this.meta["start"]] + replacement + text[column.this.meta["end"] + 1 :]
    return text


def _is_double_quoted(column: exp.Column, text: str) -> bool:
    name = column.this
    return isinstance(name, exp.Identifier) and bool(name.quoted) and text[name.meta["start"]] == '"'


def _aliases(nodes: list[exp.Expr]) -> frozenset[str]:
    names = {fold(node.alias) for node in nodes if isinstance(node, exp.Alias)}
    for node in nodes:
        if isinstance(node, exp.TableAlias):
            names.update(fold(column.name) for column in node.columns)
    return frozenset(names)


def is_value_position(column: exp.Expr) -> bool:
    """Whether a text makes sense here: right of a comparison, in a list, between, joined by ||, a later argument."""
    node, parent = column, column.parent
    while isinstance(parent, exp.Paren | exp.Escape):
        node, parent = parent, parent.parent
    key = node.arg_key
    return (
        (isinstance(parent, (*_COMPARISONS, *_NULL_SAFE)) and key == "expression")
        or (isinstance(parent, exp.In) and key == "expressions")
        or (isinstance(parent, exp.Between) and key in {"low", "high"})
        or isinstance(parent, exp.DPipe)
        or (isinstance(parent, exp.Anonymous) and (node.index or 0) > 0)
    )
