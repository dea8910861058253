"""Tell from a statement which texts it searches for, and which texts of its result it wrote itself."""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import lru_cache

import sqlglot
from sqlglot import exp
from sqlglot.errors import SqlglotError

_COMPARISONS = (exp.EQ, exp.NEQ, exp.Is, exp.NullSafeEQ, exp.Like, exp.Glob, exp.In, exp.RegexpLike, exp.StrPosition)
_WILDCARDS = re.compile(r"[%_*]+")


@lru_cache(maxsize=4096)  # because the rollouts of a group often write the same statement
def searched_texts(sql: str) -> tuple[str, ...]:
    """Return the texts, without wildcards, with which `sql` compares a column or an expression of columns.

    For example `SELECT 'a' FROM t WHERE name LIKE '%b%'` searches for "b". A statement that sqlglot cannot parse
    searches for nothing.
    """
    found: list[str] = []
    for literal in _literals(sql):
        comparison = literal.find_ancestor(*_COMPARISONS, exp.Anonymous)
        if comparison is None or comparison.find(exp.Column) is None:
            continue
        found += (piece for part in _WILDCARDS.split(literal.name) if (piece := part.strip()))
    return tuple(dict.fromkeys(found))


@lru_cache(maxsize=4096)
def written_values(sql: str) -> frozenset[str]:
    """Return the literals, as text, that `sql` can put into its result although no table has them.

    These are the literals outside of comparisons with a column: `SELECT 'a' FROM t WHERE name = 'b'` writes "a".
    """
    return frozenset(
        literal.name
        for literal in _literals(sql)
        if (above := literal.find_ancestor(*_COMPARISONS, exp.Limit, exp.Offset)) is None
        or (isinstance(above, _COMPARISONS) and above.find(exp.Column) is None)
    )


def _literals(sql: str) -> Iterator[exp.Literal]:
    # Both engines read backticks and double-quoted names; sqlglot's SQLite dialect reads the statements of both.
    try:
        tree = sqlglot.parse_one(sql, dialect="sqlite")
    except (SqlglotError, RecursionError):
        return
    yield from tree.find_all(exp.Literal)
