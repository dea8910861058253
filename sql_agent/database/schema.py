"""Define the tables that a task requires and the schema of a database, with hints about unknown names."""

from __future__ import annotations

import difflib
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import NamedTuple

from sql_agent.errors import DatabaseFileError

MAX_HINT_CHARS = 200  # a small limit, for models with a small context
TRY = "try: "  # begins the line of a hint that is a statement to run
_TABLES_DESCRIBED = 4  # hints about a database with more tables list no columns
_MISSPELT = 0.8  # minimum similarity of a column to its misspelt name, as `difflib` reckons it
_MUCH_NEARER = 0.1  # a column of another table is suggested if its similarity is higher by at least this much

ROW_IDS = ("rowid", "_rowid_", "oid")  # SQLite's names for the row number

_TO_LOWER = bytes.maketrans(b"ABCDEFGHIJKLMNOPQRSTUVWXYZ", b"abcdefghijklmnopqrstuvwxyz")


def fold(name: str) -> str:
    """Return `name` with its ASCII letters, and no others, in lower case, because SQLite compares names so."""
    if name.isascii():
        return name.lower()
    # Translating bytes is ten times faster than a str. In UTF-8 these bytes occur in ASCII letters only.
    return name.encode("utf-8", "surrogatepass").translate(_TO_LOWER).decode("utf-8", "surrogatepass")


def quoted(name: str) -> str:
    """Quote a table's or column's name with backticks, for SQLite and MySQL."""
    return "`" + name.replace("`", "``") + "`"


@dataclass(frozen=True)
class Naming:
    """The column with the names of a table's rows, and where aliases of these names come from.

    `aliases` maps another column to a function that extracts names from a cell. `called` maps a formal name to everyday
    names, which are in no cell, such as brands. Everyday names also apply to a row whose name consists of the formal
    name and words of `beside`, such as a salt or a dosage form. `near` maps a column to other columns that people
    mistake for it, and `said` maps a column to words that people use for it.
    """

    column: str
    aliases: Mapping[str, Callable[[str], Iterable[str]]] = field(default_factory=dict)
    called: Mapping[str, Sequence[str]] = field(default_factory=dict)
    beside: frozenset[str] = frozenset()
    near: Mapping[str, Sequence[str]] = field(default_factory=dict)
    said: Mapping[str, Sequence[str]] = field(default_factory=dict)


@dataclass(frozen=True)
class RequiredSchema:
    """The tables that a database must have, each with its required columns and at least one row.

    Statements may read only these tables. If `tables` is None, statements may read every table, and the database must
    have at least one. `hint` says how to get such a database. `names` maps a table to the naming of its rows.
    """

    tables: Mapping[str, tuple[str, ...]] | None
    hint: str
    names: Mapping[str, Naming] = field(default_factory=dict)


class ForeignKey(NamedTuple):
    """A column of a table whose values refer to the column `target` of `table`."""

    column: str
    table: str
    target: str


@dataclass(frozen=True)
class Schema:
    """The readable tables of a database with their columns in order, and the names of the other tables.

    `database` is the qualifier of table names, as in `main.books`. `row_keys` are pairs of a table and its row key: the
    integer column that identifies a row, or None. A table without such a pair has the row key `id`. `foreign_keys` are
    pairs of a table and one of its foreign keys, without keys of several columns.
    """

    tables: tuple[tuple[str, tuple[str, ...]], ...]
    other_tables: frozenset[str] = frozenset()
    database: str = "main"
    row_keys: tuple[tuple[str, str | None], ...] = ()
    foreign_keys: tuple[tuple[str, ForeignKey], ...] = ()

    @cached_property
    def columns(self) -> Mapping[str, tuple[str, ...]]:
        return dict(self.tables)

    def row_key(self, table: str) -> str | None:
        """Return the integer column that identifies a row of `table`, such as `id` or `rowid`; None without one."""
        return next((key for other, key in self.row_keys if fold(other) == fold(table)), "id")

    def links_of(self, table: str) -> Sequence[ForeignKey]:
        """Return the foreign keys of `table`, and the reverse of those that refer to `table`."""
        return self._links.get(table, ())

    @cached_property
    def _links(self) -> Mapping[str, Sequence[ForeignKey]]:
        links: dict[str, list[ForeignKey]] = {}
        for table, key in self.foreign_keys:
            one, other = self.spelled(table), self.spelled(key.table)
            if one is not None and other is not None and one != other:
                links.setdefault(one, []).append(key._replace(table=other))
                links.setdefault(other, []).append(ForeignKey(key.target, one, key.column))
        return links

    def spelled(self, table: str) -> str | None:
        """Return the name of `table`, given in any case, as the database spells it; None for an unknown table."""
        return table if table in self.columns else self._by_folded_name.get(fold(table))

    @cached_property
    def _by_folded_name(self) -> Mapping[str, str]:
        return {fold(table): table for table in self.columns}

    @cached_property
    def column_names(self) -> frozenset[str]:
        """Return the columns of all readable tables, in the form of `fold`."""
        return frozenset(fold(column) for _, columns in self.tables for column in columns)

    @property
    def only_these(self) -> str:
        return shortened(f"only {_listed(self.columns)} may be read")

    @property
    def listing(self) -> str:
        """Return a hint that lists the tables and, if the tables are few, their columns."""
        if len(self.tables) > _TABLES_DESCRIBED:
            return shortened(f"the tables are {_listed(self.columns)}")
        room = MAX_HINT_CHARS // len(self.tables) - 2
        return "; ".join(shortened(f"{table} has {', '.join(columns)}", room) for table, columns in self.tables)

    def nearest_column(self, name: str, tables: Collection[str] = ()) -> str:
        """Return a hint for an unknown column: the tables with that column, the most similar columns, or all columns.

        `tables` are those that the statement reads. Columns of these tables are preferred, unless another table has a
        much more similar column.
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

    def misspelt_column(self, name: str, table: str) -> str:
        """Return the column of `table` that `name` misspells, or ""."""
        columns = {fold(column): column for column in self.columns.get(table, ())}
        near = difflib.get_close_matches(fold(name), columns, n=1, cutoff=_MISSPELT)
        return columns[near[0]] if near else ""

    def nearest_table(self, name: str) -> str:
        near = _nearest(fold(name), list(self.columns))
        return f"did you mean {near[0]}?" if near else shortened(f"the database has {_listed(self.columns)}")


def readable_tables(
    source: object,
    required: RequiredSchema,
    found: Collection[str],
    columns_of: Callable[[str], tuple[str, ...]],
    has_rows: Callable[[str], bool],
) -> dict[str, tuple[str, ...]]:
    """Return the readable tables among `found`, with their columns.

    Raises DatabaseFileError if the database at `source` lacks a required table, column or row.
    """
    if not found:
        raise DatabaseFileError(f"{source} has no tables", hint=required.hint)
    if required.tables is None:
        return {table: columns_of(table) for table in found}
    tables = {}
    for name, needed in required.tables.items():
        table = fold(name)
        if table not in found:
            message = f"{source} has no table {table} (found: {', '.join(sorted(found))})"
            raise DatabaseFileError(message, hint=required.hint)
        tables[table] = columns_of(table)
        if missing := [column for column in needed if fold(column) not in map(fold, tables[table])]:
            raise DatabaseFileError(f"{source}: table {table} has no column {', '.join(missing)}", hint=required.hint)
        if not has_rows(table):
            raise DatabaseFileError(f"{source}: table {table} has no rows", hint=required.hint)
    return tables


def shortened(listing: str, room: int = MAX_HINT_CHARS) -> str:
    """Cut a comma-separated listing to at most `room` characters, at a comma."""
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
    """Return up to two candidates that resemble `name` as a whole or in one word, as `book_title` resembles `title`."""
    scores = {candidate: _likeness(name, candidate) for candidate in candidates}
    best = sorted(candidates, key=lambda candidate: (-scores[candidate], len(candidate)))
    return [candidate for candidate in best[:2] if scores[candidate] >= 0.6]


def _likeness(name: str, candidate: str) -> float:
    """Return the similarity of two names, 0 to 1; a match of one word counts less than a match of the whole name."""
    whole = difflib.SequenceMatcher(None, name, candidate).ratio()
    words = (word for word in candidate.split("_") if len(word) > 2)
    parts = (difflib.SequenceMatcher(None, piece, word).ratio() for word in words for piece in {name, *name.split("_")})
    return max(whole, 0.9 * max(parts, default=0.0))
