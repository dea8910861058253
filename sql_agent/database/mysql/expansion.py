"""Bound what a server makes of a statement before it runs it, because no limit of its own ends that.

A server puts each WITH query and each subquery of a FROM clause in the place where it is named, and each of their
expressions where its column is named. Thirty WITH queries, each with `x + x` of the one before, became 2**30 copies: a
statement that MariaDB 10.11 could not end, neither at its limit nor by KILL.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import NamedTuple, TypeGuard

from sqlglot import exp


class Expansion(NamedTuple):
    """Counts what a query is once the server has put it together.

    `tables` are those that it reads, `copies` those of a column in one expression, `parsed` the queries that are read:
    a WITH query where it stands and again wherever it is named, with the WITH queries inside it.
    """

    tables: int
    copies: int
    parsed: int


_TABLE = Expansion(1, 1, 0)
_CTES: Mapping[str, Expansion] = {}


def expansion(query: exp.Expr, ctes: Mapping[str, Expansion] = _CTES) -> Expansion:
    """Return a bound on the expansion of `query`, in which the names of `ctes` stand for WITH queries."""
    visible, defined = dict(ctes), 0
    if (clause := query.args.get("with_")) is not None:
        for cte in clause.expressions:
            visible[cte.alias] = expansion(cte.this, visible)
            defined += visible[cte.alias].parsed
    if isinstance(query, exp.SetOperation):
        left, right = expansion(query.this, visible), expansion(query.expression, visible)
        parsed = defined + left.parsed + right.parsed
        return Expansion(left.tables + right.tables, max(left.copies, right.copies), parsed)
    if isinstance(query, exp.Subquery):
        inside = expansion(query.this, visible)
        return inside._replace(parsed=defined + inside.parsed)
    if not isinstance(query, exp.Select):
        return Expansion(0, 1, defined + 1)
    clauses = [query.args.get("from_"), *(query.args.get("joins") or ())]
    sources = [found for clause in clauses if clause is not None for found in _sources(clause.this, visible)]
    expressions = list(_expressions(query))
    within = [expansion(found, visible) for root in expressions for found in _outermost(root)]
    most = max((_copies(root) for root in expressions), default=1)
    parts = [*sources, *within]
    return Expansion(
        sum(part.tables for part in parts),
        max(1, most) * max((part.copies for part in parts), default=1),
        defined + 1 + sum(part.parsed for part in parts),
    )


def _sources(node: exp.Expr, ctes: Mapping[str, Expansion]) -> Iterator[Expansion]:
    """Yield the items of a FROM clause that `node` stands for; in parentheses there may be several."""
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


def _copies(node: exp.Expr) -> int:
    """Count the columns and subqueries of an expression once those left of IN (SELECT ...) or = ANY are copied into it.

    A subquery counts because what it names is put together once for it and once for what is around it.
    """
    copied = node.args.get("query") is not None or isinstance(node.args.get("expression"), exp.Any | exp.All)
    count = int(isinstance(node, exp.Column | exp.Select))
    for key, value in node.args.items():
        inside = sum(_copies(part) for part in (value if isinstance(value, list) else (value,)) if _is_part(part))
        count += 2 * inside if copied and key == "this" else inside
    return count


def _is_part(value: object) -> TypeGuard[exp.Expr]:
    return isinstance(value, exp.Expr)


def _outermost(root: exp.Expr) -> Iterator[exp.Expr]:
    """Yield the queries in an expression that are in no other query of it."""
    stack = [root]
    while stack:
        node = stack.pop()
        if isinstance(node, exp.Query):
            yield node
        else:
            stack.extend(node.iter_expressions())
