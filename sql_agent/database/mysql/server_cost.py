"""Bound what a server makes of a statement before it runs it, because no limit of its own ends that.

A server puts each WITH query and each subquery of a FROM clause in the place where it is named, and each of their
expressions where its column is named. Thirty WITH queries, each with `x + x` of the one before, became 2**30 copies: a
statement that MariaDB 10.11 could not end, neither at its limit nor by KILL.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from math import prod
from typing import NamedTuple, TypeGuard

from sqlglot import exp

from sql_agent.database.schema import fold

MAX_GROWTH = 1_000  # times the longest cell
_JOINED = frozenset({"concat", "concat_ws", "insert", "json_array", "json_object", "quote", "hex", "elt", "field"})
_OF_A_CELL = 1_000  # characters that one character of a text may be replaced by where they come from a cell
_GROUP = 10  # a joined group; the session's group_concat_max_len bounds it


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


def text_growth(query: exp.Expr) -> int:
    """Return a bound on how many times longer than the longest cell a text of `query` can be; it is no exact one."""
    if isinstance(query, exp.SetOperation):
        return _growth_of_with(query) * max(text_growth(query.this), text_growth(query.expression))
    if isinstance(query, exp.Subquery):
        return text_growth(query.this) if isinstance(query.this, exp.Expr) else 1
    clauses = [query.args.get("from_"), *(query.args.get("joins") or ())]
    sources = (node for clause in clauses if clause is not None for node in _queries_of(clause))
    parts = (value for key, value in query.args.items() if key not in {"with_", "from_", "joins"})
    own = [_of_expression(node) for part in parts for node in (part if isinstance(part, list) else [part]) if node]
    return _growth_of_with(query) * prod(text_growth(source) for source in sources) * max(own, default=1)


def _growth_of_with(query: exp.Expr) -> int:
    clause = query.args.get("with_")
    return prod(text_growth(cte.this) for cte in clause.expressions) if clause is not None else 1


def _queries_of(clause: exp.Expr) -> Iterable[exp.Expr]:
    """Return the outermost queries inside an item of a FROM clause."""
    return (
        node
        for node in clause.find_all(exp.Query)
        if isinstance(node, exp.Select | exp.SetOperation) and _is_outermost(node, clause)
    )


def _is_outermost(node: exp.Expr, clause: exp.Expr) -> bool:
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
        return text_growth(node)
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
