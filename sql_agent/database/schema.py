"""Define the schema that a task requires and the schema of an opened database, with hints about wrong names."""

from __future__ import annotations

import difflib
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property

MAX_HINT_CHARS = 200  # the model that reads it may have a small context
_TABLES_DESCRIBED = 4  # with their columns, for which a hint has no room where there are more
_MUCH_NEARER = 0.1  # likeness by which a column of another table is preferred to one of a table that is read

_TO_LOWER = bytes.maketrans(b"ABCDEFGHIJKLMNOPQRSTUVWXYZ", b"abcdefghijklmnopqrstuvwxyz")


def fold(name: str) -> str:
    """Lower-case the ASCII letters of a name, as SQLite compares names; a look-alike letter is never a table's."""
    if name.isascii():
        return name.lower()
    # Translating bytes is ten times faster; in UTF-8 these bytes occur in ASCII letters only.
    return name.encode("utf-8", "surrogatepass").translate(_TO_LOWER).decode("utf-8", "surrogatepass")


def quoted(name: str) -> str:
    """Return a table's or column's name in backticks, which SQLite and MySQL both read."""
    return "`" + name.replace("`", "``") + "`"


@dataclass(frozen=True)
class Naming:
    """The column with the names of a table's rows, and where further names come from.

    `aliases` maps another column to a function that returns the names in a cell's text. `called` maps a formal
    name to names that no cell contains: brands, everyday names. A row with a longer name, which contains the formal
    name as whole words, has these names too; where `beside` is given, only if the rest consists of such words.
    """

    column: str
    aliases: Mapping[str, Callable[[str], Iterable[str]]] = field(default_factory=dict)
    called: Mapping[str, Sequence[str]] = field(default_factory=dict)
    beside: frozenset[str] | None = None


@dataclass(frozen=True)
class RequiredSchema:
    """What a database must have to be opened: tables, each with its required columns and at least one row.

    Statements may read these tables only; with `tables` None they may read every table, and one table is enough. `hint`
    says how to get such a database. `names` gives the column with the rows' names by table; hints offer these names
    when a search finds nothing.
    """

    tables: Mapping[str, tuple[str, ...]] | None
    hint: str
    names: Mapping[str, Naming] = field(default_factory=dict)


@dataclass(frozen=True)
class Schema:
    """The readable tables of a database with their columns in order, and the names of the other tables.

    `database` is the name of the database in statements, as in `main.books`.
    """

    tables: tuple[tuple[str, tuple[str, ...]], ...]
    other_tables: frozenset[str] = frozenset()
    database: str = "main"

    @cached_property
    def columns(self) -> Mapping[str, tuple[str, ...]]:
        """Column names by table that may be read; table names are as the engine tells them apart."""
        return dict(self.tables)

    def spelled(self, table: str) -> str | None:
        """Return `table`, written in any case, as `columns` spells it; None for an unknown table."""
        return table if table in self.columns else self._by_folded_name.get(fold(table))

    @cached_property
    def _by_folded_name(self) -> Mapping[str, str]:
        return {fold(table): table for table in self.columns}

    @cached_property
    def column_names(self) -> frozenset[str]:
        """Return every column of every table that may be read, in lower case."""
        return frozenset(fold(column) for _, columns in self.tables for column in columns)

    @property
    def only_these(self) -> str:
        """Return a hint for a table that may not be read."""
        return shortened(f"only {_listed(self.columns)} may be read")

    @property
    def listing(self) -> str:
        """Return a hint that lists tables and columns; only the tables where there are many."""
        if len(self.tables) > _TABLES_DESCRIBED:
            return shortened(f"the tables are {_listed(self.columns)}")
        room = MAX_HINT_CHARS // len(self.tables) - 2
        return "; ".join(shortened(f"{table} has {', '.join(columns)}", room) for table, columns in self.tables)

    def nearest_column(self, name: str, tables: Collection[str] = ()) -> str:
        """Return a hint for an unknown column: the tables that have it, the nearest names, or all columns.

        The columns of `tables`, which the statement reads, are preferred unless another table has a much nearer one.
        """
        name = fold(name.rsplit(".", 1)[-1])
        owners = [table for table, columns in self.tables if name in map(fold, columns)]
        if owners:
            return f"{name} is a column of {_listed(owners)}"
        read = [(table, columns) for table, columns in self.tables if table in tables] or self.tables
        near, anywhere = (_nearest(name, _column_names(searched)) for searched in (read, self.tables))
        if anywhere and (not near or _likeness(name, near[0]) < _likeness(name, anywhere[0]) - _MUCH_NEARER):
            near, read = anywhere, self.tables
        if near:
            return "did you mean " + " or ".join(f"{_owner(column, read)}.{column}" for column in near) + "?"
        return shortened("; ".join(f"{table} has {', '.join(columns)}" for table, columns in read))

    def nearest_table(self, name: str) -> str:
        """Return a hint for an unknown table."""
        near = _nearest(fold(name), list(self.columns))
        return f"did you mean {near[0]}?" if near else shortened(f"the database has {_listed(self.columns)}")


def shortened(listing: str, room: int = MAX_HINT_CHARS) -> str:
    """Cut a listing to `room` characters, after a comma."""
    if len(listing) <= room:
        return listing
    return listing[: room - 2].rpartition(",")[0] + ", …"


def _column_names(tables: Iterable[tuple[str, tuple[str, ...]]]) -> list[str]:
    return sorted({fold(column) for _, columns in tables for column in columns})


def _owner(column: str, tables: Iterable[tuple[str, tuple[str, ...]]]) -> str:
    return next(table for table, columns in tables if column in map(fold, columns))


def _listed(names: Iterable[str]) -> str:
    """Return `a`, `a and b`, or `a, b and c`."""
    *first, last = names
    return f"{', '.join(first)} and {last}" if first else last


def _nearest(name: str, candidates: list[str]) -> list[str]:
    """Return up to two candidates that look like `name` as a whole or in one of their words (`name` and `med_name`)."""
    scores = {candidate: _likeness(name, candidate) for candidate in candidates}
    best = sorted(candidates, key=lambda candidate: (-scores[candidate], len(candidate)))
    return [candidate for candidate in best[:2] if scores[candidate] >= 0.6]


def _likeness(name: str, candidate: str) -> float:
    """Return the similarity of two names, 0 to 1; a match of one word counts a little less than of the whole."""
    whole = difflib.SequenceMatcher(None, name, candidate).ratio()
    words = (word for word in candidate.split("_") if len(word) > 2)
    parts = (difflib.SequenceMatcher(None, piece, word).ratio() for word in words for piece in {name, *name.split("_")})
    return max(whole, 0.9 * max(parts, default=0.0))
