"""Parse the location of a database (a SQLite file, or a MySQL or MariaDB server), and open the database there."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path

from sql_agent.database.mysql.address import SCHEMES, ServerAddress
from sql_agent.database.mysql.connection import MysqlConnection, MysqlServer, open_server
from sql_agent.database.schema import Naming, RequiredSchema, Schema
from sql_agent.database.sqlite.connection import SqliteConnection, SqliteFile, open_file
from sql_agent.errors import ConfigError
from sql_agent.schemas import QueryLimits

# A SQLite file or a server. Messages show str() of a source, which has no password.
Source = Path | ServerAddress

_SQLITE = "sqlite:///"
_URL = re.compile(r"\s*(?:(?:mysql|mariadb)[\w+]*:|[a-z][\w+.-]+:/)", re.IGNORECASE)  # C: is a drive

Connection = SqliteConnection | MysqlConnection


@dataclass(frozen=True)
class Opened:
    """A checked database, which is pickled for the worker processes; with `hinted`, answers have hints."""

    engine: SqliteFile | MysqlServer
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
    if isinstance(source, ServerAddress):
        return Opened(*open_server(source, required), names, limits)
    return Opened(*open_file(source, required), names, limits)


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
    """Return whether `text` is a URL, which may contain a password, and not the path of a file."""
    return _URL.match(text) is not None
