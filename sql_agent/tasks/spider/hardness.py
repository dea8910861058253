"""Tell how hard a gold statement is, by counting its components as Spider's evaluation does.

The counting is that of Yu et al. 2018 (arXiv:1809.08887) as published with the data: components of the outer SELECT
(WHERE, GROUP BY, ORDER BY, LIMIT, joins, OR, LIKE), nested queries, and what there are several of.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import lru_cache

from sqlglot import exp

from sql_agent.database.guard import parse
from sql_agent.database.sqlite.dialect import SQLITE
from sql_agent.errors import QueryError

LEVELS = ("easy", "medium", "hard", "extra")
_AGGREGATES = frozenset({"max", "min", "count", "sum", "avg"})


@lru_cache(maxsize=20_000)
def hardness(sql: str) -> str:
    """Return the level of a gold statement, one of LEVELS; "extra" where it cannot be parsed."""
    try:
        tree = parse(sql, SQLITE)
    except QueryError:
        return "extra"
    select = _first_select(tree)
    where, having = _conditions(select, "where"), _conditions(select, "having")
    conditions = [*_joined(select), *where, *having]
    components = _components(select, conditions)
    nested = sum(condition.find(exp.Select) is not None for condition in conditions) + (tree is not select)
    several = _several(select, where, having)
    if nested == 0 and components <= 1 and several == 0:
        return "easy"
    if nested == 0 and ((several <= 2 and components <= 1) or (components <= 2 and several < 2)):
        return "medium"
    if (
        (nested == 0 and several > 2 and components <= 2)
        or (nested == 0 and 2 < components <= 3 and several <= 2)
        or (nested <= 1 and components <= 1 and several == 0)
    ):
        return "hard"
    return "extra"


def _first_select(tree: exp.Expr) -> exp.Expr:
    """Return the SELECT that is counted: of a UNION, INTERSECT or EXCEPT the first; the other counts as nested."""
    while isinstance(tree, exp.SetOperation | exp.Subquery):
        tree = tree.this
    return tree


def _components(select: exp.Expr, conditions: list[exp.Expr]) -> int:
    clauses = sum(select.args.get(name) is not None for name in ("where", "group", "order", "limit"))
    alternatives = len({id(node) for condition in conditions for node in _alternatives(condition)})
    likes = sum(isinstance(_positive(condition), exp.Like) for condition in conditions)
    return clauses + len(select.args.get("joins") or ()) + alternatives + likes


def _several(select: exp.Expr, where: list[exp.Expr], having: list[exp.Expr]) -> int:
    outputs = select.expressions
    group = select.args.get("group")
    order = select.args.get("order")
    aggregates = sum(map(_is_aggregate, outputs))
    aggregates += sum(isinstance(condition, exp.Not) for condition in where)
    aggregates += sum(map(_is_aggregate, order.expressions)) if order is not None else 0
    aggregates += max(0, len(having) - 1)  # the published count takes each AND and OR of a HAVING for one
    return (aggregates > 1) + (len(outputs) > 1) + (len(where) > 1) + (group is not None and len(group.expressions) > 1)


def _joined(select: exp.Expr) -> list[exp.Expr]:
    """Return the conditions by which tables are joined."""
    return [condition for join in select.args.get("joins") or () for condition in _flat(join.args.get("on"))]


def _conditions(select: exp.Expr, clause: str) -> list[exp.Expr]:
    found = select.args.get(clause)
    return list(_flat(found.this)) if found is not None else []


def _flat(condition: exp.Expr | None) -> Iterator[exp.Expr]:
    """Yield the conditions that AND and OR join."""
    if isinstance(condition, exp.And | exp.Or):
        yield from _flat(condition.left)
        yield from _flat(condition.right)
    elif isinstance(condition, exp.Paren):
        yield from _flat(condition.this)
    elif condition is not None:
        yield condition


def _alternatives(condition: exp.Expr) -> Iterator[exp.Expr]:
    """Yield every OR above a condition, up to its clause."""
    node = condition.parent
    while isinstance(node, exp.And | exp.Or | exp.Paren):
        if isinstance(node, exp.Or):
            yield node
        node = node.parent


def _positive(condition: exp.Expr) -> exp.Expr:
    return condition.this if isinstance(condition, exp.Not) else condition


def _is_aggregate(output: exp.Expr) -> bool:
    node = output.this if isinstance(output, exp.Ordered) else output.unalias()
    return isinstance(node, exp.Anonymous | exp.Func) and node.name.lower() in _AGGREGATES
