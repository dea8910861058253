"""Define what the guard, the hints and the prompts must know about an engine's SQL."""

from __future__ import annotations

import re
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from typing import ClassVar

from sqlglot import exp

from sql_agent.database.schema import fold

WINDOW_FUNCTIONS = frozenset(
    {
        *("cume_dist", "dense_rank", "first_value", "lag", "last_value", "lead", "nth_value", "ntile"),
        *("percent_rank", "rank", "row_number"),
    }
)


class Dialect(ABC):
    """Describes an engine's SQL; each engine has one instance.

    `name` is sqlglot's, `title` the one for people and models. `functions` are those that a statement may call, in
    lower case, `aggregates` and `window_functions` the ones among them that read several rows.
    """

    name: ClassVar[str]
    title: ClassVar[str]
    aggregates: ClassVar[frozenset[str]]
    window_functions: ClassVar[frozenset[str]] = WINDOW_FUNCTIONS
    functions: ClassVar[frozenset[str]]
    function_hints: ClassVar[Mapping[str, str]]
    usual_functions: ClassVar[str]  # the hint for a function that has none of its own
    row_ids: ClassVar[frozenset[str]]  # names by which a row's number can be read where no column has the name
    parts: ClassVar[re.Pattern[str]]  # groups `quoted`, `comment` and `open`, a quote or comment that never ends

    @abstractmethod
    def parse(self, text: str) -> list[exp.Expr | None]:
        """Return the trees of the statements in `text`, functions kept as written. Raises ParseError, TokenError."""

    @abstractmethod
    def check_text(self, text: str, bare: str) -> None:
        """Raise QueryError for what this engine would read in another way than sqlglot.

        `text` has no comments, `bare` is the same with everything inside quotes masked.
        """

    @abstractmethod
    def check_nodes(self, text: str, tree: exp.Query, nodes: Sequence[exp.Expr]) -> None:
        """Raise QueryError for a part of the parsed statement `text` that may not run; `nodes` are those of `tree`."""

    @abstractmethod
    def syntax_hint(self, text: str) -> str:
        """Return what to write in place of a statement that cannot be read."""

    @abstractmethod
    def table_key(self, name: str) -> str:
        """Return the form of a table's or WITH query's name by which the engine tells it from others."""

    @abstractmethod
    def text_literal(self, text: str) -> str:
        """Return `text` as a literal of a statement."""

    @abstractmethod
    def joined(self, *parts: str) -> str:
        """Return the expression that joins the texts of the expressions `parts`."""

    def called(self, node: exp.Expr) -> str | None:
        """Return the name of the function that `node` calls, in lower case; None for what is no call."""
        if isinstance(node, exp.Anonymous) and not isinstance(node.parent, exp.Table):
            return fold(node.name)
        return None

    def function_hint(self, name: str) -> str:
        """Return what to write in place of the function `name`, in lower case."""
        return self.function_hints.get(name) or self.usual_functions
