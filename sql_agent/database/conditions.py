"""Find the conditions of a statement's WHERE clauses, and the texts for which the conditions search."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from sqlglot import exp

from sql_agent.database.dialect import Dialect, from_items
from sql_agent.database.schema import Schema, fold

_SEARCHES = (exp.EQ, exp.Is, exp.NullSafeEQ, exp.Like, exp.Glob, exp.In)
_WILDCARDS = re.compile(r"[%_*?]+")


@dataclass(frozen=True)
class SearchedText:
    """A string for which a condition searches.

    `text` is the longest piece between wildcards. `table` and `column` are None if the searched column does not belong
    to a table of the schema. `node` is the comparison with the string, such as `name = 'a'`. In a list after IN, `text`
    is the whole string, and `node` is the string's node.
    """

    text: str
    table: str | None
    column: str | None
    node: exp.Expr = field(compare=False, repr=False)


@dataclass(frozen=True)
class Condition:
    """One of the conditions that a WHERE clause combines with AND.

    `table` is the only table of the schema that the condition reads; None if the condition reads several tables or
    none. `sql` is the condition without table aliases, `node` is the condition in the tree. `texts` are the texts for
    which the condition searches.
    """

    table: str | None
    sql: str
    texts: tuple[SearchedText, ...]
    node: exp.Expr = field(compare=False, repr=False)


def conditions(tree: exp.Expr, schema: Schema, dialect: Dialect) -> tuple[Condition, ...]:
    """Return the conditions of all WHERE clauses of `tree`, including subqueries."""
    return tuple(
        _condition(node, where, schema, dialect)
        for where in tree.find_all(exp.Where)
        for node in _joined_with_and(where.this)
    )


def only_table(tree: exp.Expr, schema: Schema) -> str | None:
    """Return the table of a statement that is a single SELECT from a single table, else None."""
    tables = list(tree.find_all(exp.Table))
    return schema.spelled(tables[0].name) if isinstance(tree, exp.Select) and len(tables) == 1 else None


def _joined_with_and(node: exp.Expr) -> Iterator[exp.Expr]:
    node = node.unnest()  # without parentheses
    if isinstance(node, exp.And):
        yield from _joined_with_and(node.this)
        yield from _joined_with_and(node.expression)
    else:
        yield node


def _condition(node: exp.Expr, where: exp.Expr, schema: Schema, dialect: Dialect) -> Condition:
    sources = _sources(where, schema)
    tables = {_table_of(column, sources, schema) for column in node.find_all(exp.Column)}
    found = (
        _searched(literal, sources, schema)
        for literal in node.find_all(exp.Literal)
        if literal.is_string and literal.find_ancestor(exp.Where) is where
    )
    return Condition(
        tables.pop() if len(tables) == 1 and node.find(exp.Query) is None else None,
        without_aliases(node).sql(dialect.grammar),
        tuple(dict.fromkeys(text for text in found if text is not None)),
        node,
    )


def without_aliases(node: exp.Expr) -> exp.Expr:
    """Return a copy of a condition without table names before its columns."""
    copy = node.copy()
    for column in copy.find_all(exp.Column):
        column.set("table", None)
        column.set("db", None)
    return copy


def edited(tree: exp.Query, changes: Sequence[tuple[exp.Expr, exp.Expr | None]]) -> exp.Query:
    """Return a copy of `tree` with the first node of each pair in `changes` replaced by the second.

    If the second is None, the first is a condition, which is removed.
    """
    copy = tree.copy()
    copies = {id(old): new for old, new in zip(tree.walk(), copy.walk(), strict=True)}
    for node, new in changes:
        if new is not None:
            copies[id(node)].replace(new)
        else:
            _remove(copies[id(node)])
    return copy


def _remove(condition: exp.Expr) -> None:
    parent = condition.parent
    while isinstance(parent, exp.Paren):
        condition, parent = parent, parent.parent
    if isinstance(parent, exp.And):
        parent.replace(parent.expression if condition.arg_key == "this" else parent.this)
    elif parent is not None:
        parent.pop()  # the whole WHERE clause


def _sources(where: exp.Expr, schema: Schema) -> dict[str, str]:
    """Return {alias: table} of the SELECT with the clause `where`; a table outside the schema is ""."""
    tables = from_items(where.parent) if where.parent is not None else []
    return {fold(t.alias_or_name): schema.spelled(t.name) or "" for t in tables if isinstance(t, exp.Table)}


def _table_of(column: exp.Column, sources: dict[str, str], schema: Schema) -> str | None:
    """Return the table of a column; None if the column comes from a WITH query or another SELECT."""
    named = [sources.get(fold(column.table), "")] if column.table else list(sources.values())
    tables = [table for table in named if fold(column.name) in map(fold, schema.columns.get(table, ()))]
    return tables[0] if len(tables) == 1 else None


def _searched(literal: exp.Literal, sources: dict[str, str], schema: Schema) -> SearchedText | None:
    """Return the text for which a comparison with `literal` searches; None if there is no such comparison.

    A negated comparison searches for nothing.
    """
    if isinstance(literal.parent, exp.Escape) and literal.arg_key == "expression":
        return None
    comparison = literal.find_ancestor(*_SEARCHES, exp.Not, exp.NEQ, exp.Where)
    call = literal.find_ancestor(exp.Anonymous)
    if call is not None and fold(call.name) == "instr":
        comparison = call.parent if isinstance(call.parent, exp.Predicate) else call
    elif (
        not isinstance(comparison, _SEARCHES) or isinstance(comparison.parent, exp.Not) or comparison.args.get("negate")
    ):
        return None
    is_listed = isinstance(comparison, exp.In)
    pieces = [literal.name] if is_listed else [piece.strip() for piece in _WILDCARDS.split(literal.name)]
    if not any(piece.strip() for piece in pieces):
        return None
    column = comparison.find(exp.Column)
    table = _table_of(column, sources, schema) if column is not None else None
    name = fold(column.name) if column is not None and table else None
    return SearchedText(max(pieces, key=len), table, name, literal if is_listed else comparison)
