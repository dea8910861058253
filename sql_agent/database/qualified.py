"""Leave out the name of the database before the names of tables and columns."""

from __future__ import annotations

from collections.abc import Iterable

from sqlglot import exp


def without_database(text: str, nodes: Iterable[exp.Expr]) -> str:
    """Return the statement `text` without the database's name in the tables and columns among `nodes`."""
    names = [node.args["db"] for node in nodes if isinstance(node, exp.Table | exp.Column) and node.args.get("db")]
    for name in sorted(names, key=lambda node: -int(node.meta["start"])):
        rest = text[name.meta["end"] + 1 :].lstrip()
        text = text[: name.meta["start"]] + rest.removeprefix(".").lstrip()
    return text
