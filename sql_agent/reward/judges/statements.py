"""Find the texts that a SQL statement searches for, and the literals that it writes into its own result."""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import lru_cache
from typing import NamedTuple

import sqlglot
from sqlglot import exp
from sqlglot.errors import SqlglotError

_COMPARISONS = (exp.EQ, exp.NEQ, exp.Is, exp.NullSafeEQ, exp.Like, exp.Glob, exp.In, exp.RegexpLike, exp.StrPosition)
_WILDCARDS = re.compile(r"[%_*]+")


class Search(NamedTuple):
    """A text, without wildcards, with which a statement compares a column; `column` is in lower case."""

    column: str
    text: str


@lru_cache(maxsize=4096)  # because the rollouts of a group often write the same statement
def searches(sql: str) -> tuple[Search, ...]:
    """Return the texts with which `sql` compares columns, each paired with every column of the comparison.

    For example `SELECT 'a' FROM t WHERE name LIKE '%b%'` searches for "b" in `name`. The result is empty if sqlglot
    cannot parse the statement.
    """
    found: list[Search] = []
    for literal in _literals(sql):
        comparison = literal.find_ancestor(*_COMPARISONS, exp.Anonymous)
        columns = comparison.find_all(exp.Column) if comparison is not None else ()
        texts = [piece for part in _WILDCARDS.split(literal.name) if (piece := part.strip())]
        found += [Search(column.name.lower(), text) for column in columns for text in texts]
    return tuple(dict.fromkeys(found))


def searched_texts(sql: str) -> tuple[str, ...]:
    """Return the texts for which `sql` searches in any column."""
    return tuple(dict.fromkeys(search.text for search in searches(sql)))


@lru_cache(maxsize=4096)
def written_values(sql: str) -> frozenset[str]:
    """Return the literals, as text, that `sql` writes into its own result: "a" for `SELECT 'a' FROM t`.

    Literals in aggregates, comparisons and LIMIT are not included.
    """
    return frozenset(
        literal.name
        for literal in _literals(sql)
        if literal.find_ancestor(*_COMPARISONS, exp.AggFunc, exp.Limit, exp.Offset, exp.Exists) is None
    )


@lru_cache(maxsize=4096)
def written_texts(sql: str) -> tuple[str, ...]:
    """Return the literals that `sql` compares with nothing; a literal inside an aggregate counts too."""
    return tuple(literal.name for literal in _literals(sql) if literal.find_ancestor(*_COMPARISONS) is None)


def _literals(sql: str) -> Iterator[exp.Literal]:
    # Both engines read backticks and double-quoted names; sqlglot's SQLite dialect reads the statements of both.
    try:
        tree = sqlglot.parse_one(sql, dialect="sqlite")
    except (SqlglotError, RecursionError):
        return
    yield from tree.find_all(exp.Literal)
