"""Decide whether a statement may run: one SELECT over the tables of the schema, made of known parts only."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

from sqlglot import exp
from sqlglot.errors import ParseError, TokenError

from sql_agent.database.dialect import Dialect
from sql_agent.database.lexical import clean
from sql_agent.database.schema import Schema
from sql_agent.database.scope import Scopes
from sql_agent.errors import QueryError

KINDS = {
    "empty": "there is no statement",
    "too_long": "the text is longer than allowed",
    "too_complex": "too deep, too many tables, recursive, or a value grew too large",
    "syntax": "not SQL that the engine can read",
    "not_select": "something else than SELECT or WITH ... SELECT",
    "multiple_statements": "more than one statement",
    "forbidden_table": "a table that is not part of the schema",
    "forbidden_function": "a function that is not on the list of harmless ones",
    "unknown_table": "a table that the database does not have",
    "unknown_column": "a column that the database does not have",
    "timeout": "the deadline passed and the statement was interrupted",
    "database_changed": "the database is not the one that was opened: replaced, changed, damaged, removed or closed",
    "failed": "the engine refused the statement for another reason",
    "malformed_call": 'the tool was called with arguments that are not {"sql": text}',
}

_STATEMENTS = (
    *(exp.Insert, exp.Update, exp.Delete, exp.Merge, exp.Create, exp.Drop, exp.Alter, exp.Command, exp.Pragma),
    *(exp.Attach, exp.Detach, exp.Transaction, exp.Commit, exp.Rollback, exp.Analyze, exp.Describe, exp.Into),
    *(exp.Set, exp.Show, exp.Use, exp.Kill, exp.LoadData),
)
# More than these on a query in parentheses, such as `(SELECT ...) ORDER BY x`, is looked at by none of the checks.
_OF_SUBQUERIES = frozenset({"this", "alias", "joins"})
_ASKS_FOR_SCHEMA = re.compile(r"\s*(?:PRAGMA|SHOW|DESC|DESCRIBE)\b", re.IGNORECASE)


@dataclass(frozen=True)
class CheckedQuery:
    """A statement that may run. `from_tables`: an output column comes from a table of the schema or counts its rows.

    `sql` is the statement without comments, as the dialect wants it. `ctes` are the names of its WITH queries.
    """

    sql: str
    from_tables: bool
    ctes: frozenset[str]


def check(sql: str, schema: Schema, dialect: Dialect) -> CheckedQuery:
    """Return the statement to run in place of `sql`. Raises QueryError with one of KINDS and a hint."""
    if _ASKS_FOR_SCHEMA.match(sql):
        message = f"the statement starts with {sql.split(maxsplit=1)[0].upper()}"
        raise QueryError("not_select", message, hint=schema.listing)
    text = clean(sql, dialect)
    try:
        tree = parse(text, dialect)
        nodes = list(tree.walk())
        _check_nodes(nodes, dialect)
        dialect.check_nodes(text, tree, nodes)
        scopes = Scopes(schema, dialect)
        relation = scopes.resolve(tree)
    except RecursionError:
        raise QueryError("too_complex", "the statement is nested too deeply", hint="simplify the statement") from None
    return CheckedQuery(dialect.runnable(text, nodes, schema), relation.from_tables, frozenset(scopes.ctes))


def parse(text: str, dialect: Dialect) -> exp.Query:
    """Return the tree of one SELECT without comments, as of a CheckedQuery. Raises QueryError."""
    try:
        trees = dialect.parse(text)
    except ParseError as error:
        raise _syntax_error(error, text, dialect) from None
    except TokenError:
        raise QueryError("syntax", "the statement cannot be split into words", hint="check its quotes") from None
    tree = trees[0] if len(trees) == 1 else None
    while isinstance(tree, exp.Subquery) and tree.is_wrapper:  # parentheses around the whole
        tree = tree.this
    if not isinstance(tree, exp.Select | exp.SetOperation):
        raise _not_select(type(tree).__name__ if tree is not None else "nothing")
    return tree


def _syntax_error(error: ParseError, text: str, dialect: Dialect) -> QueryError:
    details = error.errors[0] if error.errors else {}
    near = str(details.get("highlight") or "").strip()
    description = str(details.get("description") or "").rstrip(".")
    if not description or "<" in description:  # sqlglot shows its own Python objects
        description = "something is missing"
    place = f" near {near[:60]!r}" if near else ""
    return QueryError("syntax", f"{description}{place}", hint=dialect.syntax_hint(text))


def _not_select(what: str) -> QueryError:
    return QueryError(
        "not_select", f"{what.upper()} is not allowed", hint="only SELECT, or WITH followed by SELECT, is allowed"
    )


def _check_nodes(nodes: Sequence[exp.Expr], dialect: Dialect) -> None:
    for node in nodes:
        if isinstance(node, _STATEMENTS):
            raise _not_select(type(node).__name__)
        if isinstance(node, exp.Subquery) and any(node.args[key] for key in node.args.keys() - _OF_SUBQUERIES):
            message = "a query in parentheses is followed by a clause of its own"
            raise QueryError("syntax", message, hint="write ORDER BY, LIMIT and WITH inside the parentheses")
        name = dialect.called(node)
        if name is not None and name not in dialect.functions:
            message = f"the function {name}() is not allowed"
            raise QueryError("forbidden_function", message, hint=dialect.function_hint(name))
