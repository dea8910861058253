"""Parse the location of a database (a SQLite file, or a MySQL or MariaDB server), and open the database there."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Protocol

from sql_agent.database.counterfactual import Change
from sql_agent.database.deadline import Deadline
from sql_agent.database.dialect import Dialect
from sql_agent.database.guard import Result
from sql_agent.database.mysql.address import SCHEMES, ServerAddress
from sql_agent.database.mysql.connection import open_server
from sql_agent.database.schema import Naming, RequiredSchema, Schema
from sql_agent.database.sqlite.connection import open_file
from sql_agent.errors import ConfigError
from sql_agent.schemas import QueryLimits

# A SQLite file or a server. Messages show str() of a source, which has no password.
Source = Path | ServerAddress

_SQLITE = "sqlite:///"
_URL = re.compile(r"\s*(?:(?:mysql|mariadb)[\w+]*:|[a-z][\w+.-]+:/)", re.IGNORECASE)  # C: is a drive


class Connection(Protocol):
    """A read-only connection. Its methods raise QueryError if a statement fails."""

    def run(self, sql: str, changes: Sequence[Change], deadline: Deadline) -> Result:
        """Run a statement that a model wrote, on the tables after `changes`."""

    def read(self, sql: str, seconds: float | None = None) -> Sequence[tuple[object, ...]]:
        """Return all rows of a trusted statement. Raises QueryError after `seconds`; None means no limit."""

    def close(self) -> None: ...


class Engine(Protocol):
    """Connects to one database. Engines are pickled for the worker processes."""

    @property
    def source(self) -> Source: ...

    @property
    def dialect(self) -> Dialect: ...

    def connect(self, schema: Schema, limits: QueryLimits) -> Connection:
        """Open a connection that runs statements on the tables of `schema`. Raises QueryError."""

    def silence(self) -> str | None:
        """Return why the database does not respond, or None if the database responds."""


@dataclass(frozen=True)
class Opened:
    """A checked database. `names` gives the column that names a table's rows; with `hinted`, answers have hints."""

    engine: Engine
    schema: Schema
    names: Mapping[str, Naming]
    limits: QueryLimits
    hinted: bool = True


def open_source(source: str | Source, required: RequiredSchema, limits: QueryLimits) -> Opened:
    """Check the database at `source`. Raises DatabaseFileError if the database or a required part of it is missing."""
    source = parse_source(source) if isinstance(source, str) else source
    names = {
        table: replace(naming, aliases=dict(naming.aliases), called=dict(naming.called))
        for table, naming in required.names.items()
    }
    opened: tuple[Engine, Schema] = (
        open_server(source, required, limits) if isinstance(source, ServerAddress) else open_file(source, required)
    )
    return Opened(*opened, names, limits)


def parse_source(text: str) -> Source:
    """Return the path or address in `text`. Raises ConfigError for a URL of another scheme or without a database."""
    if not is_url(text):
        return Path(text)
    if text.startswith(_SQLITE):
        return Path(text.removeprefix(_SQLITE))
    scheme, _, rest = text.partition(":")
    if scheme in SCHEMES and rest.startswith("//"):
        return ServerAddress.parse(text)
    raise ConfigError(
        f"databases with URLs of the scheme {scheme}: are not supported",
        hint="give mysql+pymysql://USER:PASSWORD@HOST/DATABASE, or the path of a SQLite file",
    )


def is_url(text: str) -> bool:
    """Return whether `text` is a URL, which may contain a password, and not a path."""
    return _URL.match(text) is not None
