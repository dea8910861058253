"""Estimate the work of a statement in advance, because no limit of MySQL or MariaDB ends the expansion of queries.

The server replaces each use of a WITH query by that query, and each use of a subquery's column by the column's
expression. Thirty WITH queries, each with `x + x` of the one before, became 2**30 copies. Neither its time limit nor
KILL made MariaDB 10.11 end this statement.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from math import prod
from typing import NamedTuple

from sqlglot import exp

from sql_agent.database.dialect import from_items
from sql_agent.database.schema import fold

MAX_GROWTH = 1_000  # maximum length of a text, as a multiple of the longest cell
_JOINED = frozenset({"concat", "concat_ws", "insert", "json_array", "json_object", "quote", "hex", "elt", "field"})
_OF_A_CELL = 1_000  # assumed length of a cell that REPLACE() puts in place of one character
_GROUP = 10  # assumed growth by group_concat(), which group_concat_max_len limits


class Expansion(NamedTuple):
    """The size of an expanded query: tables, copies of one column in an expression, and parsed queries.

    A WITH query is parsed at its definition and again at each use, together with the WITH queries inside it.
    """

    tables: int
    copies: int
    parsed: int


_TABLE = Expansion(1, 1, 0)


def expansion(query: exp.Expr, ctes: Mapping[str, Expansion] = {}) -> Expansion:
    """Return an upper bound for the expansion of `query`, which may use the WITH queries `ctes`."""
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
    parts = [found for item in from_items(query) for found in _sources(item, visible)]
    expressions = list(_expressions(query))
    parts += [expansion(found, visible) for root in expressions for found in _outermost(root)]
    return Expansion(
        sum(part.tables for part in parts),
        max([1, *map(_copies, expressions)]) * max((part.copies for part in parts), default=1),
        defined + 1 + sum(part.parsed for part in parts),
    )


def _sources(node: exp.Expr, ctes: Mapping[str, Expansion]) -> Iterator[Expansion]:
    """Yield the expansion of each table or subquery in an item of a FROM clause."""
    if isinstance(node, exp.Table):
        yield _TABLE if node.db else ctes.get(node.name, _TABLE)
    elif isinstance(node, exp.Subquery) and isinstance(node.this, exp.Table | exp.Subquery):
        yield from _sources(node.this, ctes)
    else:
        yield expansion(node, ctes)
    for join in node.args.get("joins") or ():
        yield from _sources(join.this, ctes)


def _expressions(select: exp.Select) -> Iterator[exp.Expr]:
    """Yield everything in a SELECT except the items of its FROM clause and its WITH queries."""
    for part in select.iter_expressions():
        if isinstance(part, exp.Join):
            if part.args.get("on") is not None:
                yield part.args["on"]
        elif not isinstance(part, exp.With | exp.From):
            yield part


def _copies(node: exp.Expr) -> int:
    """Count the columns and subqueries of an expression.

    What is left of IN or = ANY with a subquery counts twice, because the server copies it. A subquery counts because
    its columns are also expanded for the expression around the subquery.
    """
    copied = node.args.get("query") is not None or isinstance(node.args.get("expression"), exp.Any | exp.All)
    own = int(isinstance(node, exp.Column | exp.Select))
    return own + sum(
        _copies(part) * (2 if copied and part.arg_key == "this" else 1) for part in node.iter_expressions()
    )


def _outermost(root: exp.Expr) -> Iterator[exp.Expr]:
    stack = [root]
    while stack:
        node = stack.pop()
        if isinstance(node, exp.Query):
            yield node
        else:
            stack.extend(node.iter_expressions())


def text_growth(node: exp.Expr) -> int:
    """Return the maximum length of a text that a query or expression returns, as a multiple of the longest cell."""
    if isinstance(node, exp.Subquery):
        return text_growth(node.this)
    if isinstance(node, exp.SetOperation):
        growth = max(text_growth(node.this), text_growth(node.expression))
        return growth * _of_sources(node.args["with_"]) if node.args.get("with_") else growth
    if isinstance(node, exp.Select):
        sources = {"with_", "from_", "joins"}
        own = [text_growth(part) for part in node.iter_expressions() if part.arg_key not in sources]
        return max(own, default=1) * prod(_of_sources(p) for p in node.iter_expressions() if p.arg_key in sources)
    inside = [text_growth(part) for part in node.iter_expressions()]
    name = fold(node.name) if isinstance(node, exp.Anonymous) else ""
    if name in _JOINED or isinstance(node, exp.DPipe | exp.Concat):
        return sum(inside) + (name in {"quote", "hex"})
    if name == "replace" and len(node.expressions) == 3:
        by = node.expressions[2]
        times = len(by.name) if isinstance(by, exp.Literal) else _OF_A_CELL * inside[2]
        return inside[0] * max(1, times)
    return max(inside, default=1) * (_GROUP if isinstance(node, exp.GroupConcat) else 1)


def _of_sources(node: exp.Expr) -> int:
    """Return the product of the growth of the outermost queries in a FROM, JOIN or WITH clause."""
    if isinstance(node, exp.Select | exp.SetOperation):
        return text_growth(node)
    return prod(map(_of_sources, node.iter_expressions()))
