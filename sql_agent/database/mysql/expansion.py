"""Bound what a server makes of a statement before it runs it, because no limit of its own ends that.

A server puts each WITH query and each subquery of a FROM clause in the place where it is named, and each of their
expressions where its column is named. Thirty WITH queries, each with `x + x` of the one before, became 2**30 copies: a
statement that MariaDB 10.11 could not end, neither at its limit nor by KILL.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import NamedTuple

from sqlglot import exp


class Expansion(NamedTuple):
    """Counts the tables that a query reads once it is put together, and the copies of a column in one expression."""

    tables: int
    copies: int


_TABLE = Expansion(1, 1)
_CTES: Mapping[str, Expansion] = {}


def expansion(query: exp.Expr, ctes: Mapping[str, Expansion] = _CTES) -> Expansion:
    """Return a bound on the expansion of `query`, in which the names of `ctes` stand for WITH queries."""
    visible = dict(ctes)
    if (clause := query.args.get("with_")) is not None:
        for cte in clause.expressions:
            visible[cte.alias] = expansion(cte.this, visible)
    if isinstance(query, exp.SetOperation):
        left, right = expansion(query.this, visible), expansion(query.expression, visible)
        return Expansion(left.tables + right.tables, max(left.copies, right.copies))
    if isinstance(query, exp.Subquery):
        return expansion(query.this, visible)
    if not isinstance(query, exp.Select):
        return Expansion(0, 1)
    clauses = [query.args.get("from_"), *(query.args.get("joins") or ())]
    sources = [found for clause in clauses if clause is not None for found in _sources(clause.this, visible)]
    expressions = list(_expressions(query))
    inside = [expansion(found, visible) for root in expressions for found in _outermost(root)]
    most = max((sum(1 for _ in root.find_all(exp.Column)) for root in expressions), default=1)
    parts = [*sources, *inside]
    return Expansion(sum(part.tables for part in parts), max(1, most) * max((p.copies for p in parts), default=1))


def _sources(node: exp.Expr, ctes: Mapping[str, Expansion]) -> Iterator[Expansion]:
    """The items of a FROM clause that `node` stands for; in parentheses there may be several."""
    if isinstance(node, exp.Table):
        yield _TABLE if node.db else ctes.get(node.name, _TABLE)
    elif isinstance(node, exp.Subquery) and isinstance(node.this, exp.Table | exp.Subquery):
        yield from _sources(node.this, ctes)
    else:
        yield expansion(node, ctes)
    for join in node.args.get("joins") or ():
        yield from _sources(join.this, ctes)


def _expressions(select: exp.Select) -> Iterator[exp.Expr]:
    """Everything in a SELECT but the items of its FROM clause and its WITH queries."""
    for key, value in select.args.items():
        if key in {"with_", "from_"}:
            continue
        for node in value if isinstance(value, list) else (value,):
            if isinstance(node, exp.Join):
                if node.args.get("on") is not None:
                    yield node.args["on"]
            elif isinstance(node, exp.Expr):
                yield node


def _outermost(root: exp.Expr) -> Iterator[exp.Expr]:
    """The queries in an expression that are in no other query of it."""
    stack = [root]
    while stack:
        node = stack.pop()
        if isinstance(node, exp.Query):
            yield node
        else:
            stack.extend(node.iter_expressions())
