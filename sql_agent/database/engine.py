"""Define what a worker needs of an engine: a picklable database that it can connect to, and a read-only connection."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from sql_agent.database.dialect import Dialect
from sql_agent.database.guard import CheckedQuery
from sql_agent.database.mysql.address import ServerAddress
from sql_agent.database.schema import Naming, Schema
from sql_agent.database.truncation import Row
from sql_agent.schemas import QueryLimits

DATABASE_CHANGED = "database_changed"  # the kind when the database is not the one that was opened, or closed
UNAVAILABLE = "unavailable"  # the kind of a QueryError when a database cannot be reached, or is locked by a writer
# Where a database is: a SQLite file or a server. As a text it is what messages show, without a password.
Source = Path | ServerAddress


class Connection(Protocol):
    """Runs statements read-only. Every failure of a statement is raised as QueryError."""

    def run(self, checked: CheckedQuery, limits: QueryLimits) -> tuple[tuple[str, ...], tuple[Row, ...], bool]:
        """Run a checked statement; return its columns, the rows that fit into `limits`, and whether any are missing."""

    def read(self, sql: str, seconds: float | None = None) -> Sequence[tuple[object, ...]]:
        """Return all rows of a statement of our own, which may take `seconds`."""

    def close(self) -> None:
        """End the connection."""


class Engine(Protocol):
    """Connects to one database; it is pickled to get into the processes that run statements."""

    @property
    def source(self) -> Source: ...

    @property
    def dialect(self) -> Dialect: ...

    def connect(self, schema: Schema, limits: QueryLimits) -> Connection:
        """Open a connection for statements over `schema`. Raises QueryError."""

    def silence(self) -> str | None:
        """Return why the database does not answer, asked after a statement that was late; None when it answers."""


@dataclass(frozen=True)
class Opened:
    """Describes an opened database: how to connect to it, what may be read, and how much is returned."""

    engine: Engine
    schema: Schema
    names: Mapping[str, Naming]
    limits: QueryLimits
    hinted: bool = True
