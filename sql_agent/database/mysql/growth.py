"""Bound how much longer than a cell a statement can make a text, because the server builds it in its own memory."""

from __future__ import annotations

from collections.abc import Iterable
from math import prod

from sqlglot import exp

from sql_agent.database.schema import fold

MAX_GROWTH = 1_000  # times the longest cell
_JOINED = frozenset({"concat", "concat_ws", "insert", "json_array", "json_object", "quote", "hex", "elt", "field"})
_OF_A_CELL = 1_000  # characters that one character of a text may be replaced by where they come from a cell
_GROUP = 10  # a joined group; the session's group_concat_max_len bounds it


def growth(query: exp.Expr) -> int:
    """Return a bound on how many times longer than the longest cell a text of `query` can be; it is no exact one."""
    if isinstance(query, exp.SetOperation):
        return _with(query) * max(growth(query.this), growth(query.expression))
    if isinstance(query, exp.Subquery):
        return growth(query.this) if isinstance(query.this, exp.Expr) else 1
    clauses = [query.args.get("from_"), *(query.args.get("joins") or ())]
    sources = (node for clause in clauses if clause is not None for node in _queries(clause))
    parts = (value for key, value in query.args.items() if key not in {"with_", "from_", "joins"})
    own = [_of_expression(node) for part in parts for node in (part if isinstance(part, list) else [part]) if node]
    return _with(query) * prod(growth(source) for source in sources) * max(own, default=1)


def _with(query: exp.Expr) -> int:
    clause = query.args.get("with_")
    return prod(growth(cte.this) for cte in clause.expressions) if clause is not None else 1


def _queries(clause: exp.Expr) -> Iterable[exp.Expr]:
    """Return the outermost queries inside an item of a FROM clause."""
    return (
        node
        for node in clause.find_all(exp.Query)
        if isinstance(node, exp.Select | exp.SetOperation) and _outermost(node, clause)
    )


def _outermost(node: exp.Expr, clause: exp.Expr) -> bool:
    parent = node.parent
    while parent is not None and parent is not clause:
        if isinstance(parent, exp.Select | exp.SetOperation):
            return False
        parent = parent.parent
    return True


def _of_expression(node: object) -> int:
    if not isinstance(node, exp.Expr):
        return 1
    if isinstance(node, exp.Select | exp.SetOperation | exp.Subquery):
        return growth(node)
    if isinstance(node, exp.GroupConcat):
        return _GROUP * max((_of_expression(child) for child in node.iter_expressions()), default=1)
    inside = [_of_expression(child) for child in node.iter_expressions()]
    name = fold(node.name) if isinstance(node, exp.Anonymous) else ""
    if name in _JOINED or isinstance(node, exp.DPipe | exp.Concat):
        return sum(inside) + (name in {"quote", "hex"})
    if name == "replace" and len(node.expressions) == 3:
        text, _, by = node.expressions
        times = len(by.name) if isinstance(by, exp.Literal) else _OF_A_CELL * _of_expression(by)
        return _of_expression(text) * max(1, times)
    return max(inside, default=1)
