"""Tell a text in double quotes from a name, because SQLite silently reads an unknown "name" as a text."""

from __future__ import annotations

import re
from collections.abc import Sequence

from sqlglot import exp

from sql_agent.database.schema import Schema, fold, quoted

ROW_IDS = frozenset({"rowid", "oid", "_rowid_"})
_COMPARISONS = (exp.EQ, exp.NEQ, exp.GT, exp.GTE, exp.LT, exp.LTE, exp.Like, exp.Glob, exp.Is)
_NULL_SAFE = (exp.NullSafeEQ, exp.NullSafeNEQ)
# What looks like a column's name in double quotes is a wrong one rather than a text.
_LIKE_A_NAME = re.compile(r"[A-Za-z_]\w*", re.ASCII)


def with_real_texts(text: str, nodes: Sequence[exp.Expr], schema: Schema) -> str:
    """Replace each double-quoted word that stands for a column.

    SQLite reads an unknown "word" as a text, silently. Where a value is expected, or where it does not look like a
    name, we keep that (as 'word'); everywhere else it becomes `word`, which SQLite reports when there is no such
    column.
    """
    columns = [node for node in nodes if isinstance(node, exp.Column) and _is_double_quoted(node, text)]
    if not columns:
        return text
    known = schema.column_names | ROW_IDS | _aliases(nodes)
    for column in sorted(columns, key=lambda node: -int(node.this.meta["start"])):
        name = column.name
        is_text = is_value_position(column) or not _LIKE_A_NAME.fullmatch(name)
        if is_text and not column.table and fold(name) not in known:
            replacement = "'" + name.replace("'", "''") + "'"
        else:
            replacement = quoted(name)
        text = text[: column.this.meta["start"]] + replacement + text[column.this.meta["end"] + 1 :]
    return text


def _is_double_quoted(column: exp.Column, text: str) -> bool:
    name = column.this
    return isinstance(name, exp.Identifier) and bool(name.quoted) and text[name.meta["start"]] == '"'


def _aliases(nodes: Sequence[exp.Expr]) -> frozenset[str]:
    names = {fold(node.alias) for node in nodes if isinstance(node, exp.Alias)}
    for node in nodes:
        if isinstance(node, exp.TableAlias):
            names.update(fold(column.name) for column in node.columns)
    return frozenset(names)


def is_value_position(column: exp.Expr) -> bool:
    """Return whether a text makes sense here: right of a comparison, in a list, BETWEEN, || or a later argument."""
    node, parent = column, column.parent
    while isinstance(parent, exp.Paren | exp.Escape):
        node, parent = parent, parent.parent
    key = node.arg_key
    return (
        (isinstance(parent, (*_COMPARISONS, *_NULL_SAFE)) and key == "expression")
        or (isinstance(parent, exp.In) and key == "expressions")
        or (isinstance(parent, exp.Between) and key in {"low", "high"})
        or isinstance(parent, exp.DPipe)
        or (isinstance(parent, exp.Anonymous) and (node.index or 0) > 0)
    )
