"""Open a database by where it is: the path of a SQLite file, or the address of a MySQL or MariaDB server."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path

from sql_agent.database.database import Database
from sql_agent.database.engine import Opened, Source
from sql_agent.database.local import LocalDatabase
from sql_agent.database.mysql.address import SCHEMES, ServerAddress
from sql_agent.database.mysql.connection import open_server
from sql_agent.database.schema import Naming, RequiredSchema
from sql_agent.database.sqlite.connection import open_file
from sql_agent.errors import ConfigError
from sql_agent.schemas import QueryLimits

_SQLITE = "sqlite:///"
_URL = re.compile(r"\s*(?:(?:mysql|mariadb)[\w+]*:|[a-z][\w+.-]+:/)", re.IGNORECASE)  # a drive has one letter


def open_database(
    source: str | Source, required: RequiredSchema, limits: QueryLimits | None = None, *, hinted: bool = True
) -> Database:
    """Open the database at `source`, which as a text is a path or a URL.

    Without `hinted` its answers have no hints, which take longer than most statements. Raises DatabaseFileError when it
    is not there or lacks something of `required`.
    """
    opened = open_source(source, required, limits or QueryLimits())
    return LocalDatabase(replace(opened, hinted=hinted))


def open_source(source: str | Source, required: RequiredSchema, limits: QueryLimits) -> Opened:
    """Check the database at `source` and return what queries it. Raises DatabaseFileError as `open_database` does."""
    source = parse_source(source) if isinstance(source, str) else source
    names = {
        table: Naming(naming.column, dict(naming.aliases), dict(naming.called))
        for table, naming in required.names.items()
    }
    if isinstance(source, ServerAddress):
        server, schema = open_server(source, required, limits)
        return Opened(server, schema, names, limits)
    file, schema = open_file(source, required)
    return Opened(file, schema, names, limits)


def parse_source(text: str) -> Source:
    """Return the path or the address in `text`. Raises ConfigError for a URL of another kind or without a database."""
    if not is_url(text):
        return Path(text)
    if text.startswith(_SQLITE):
        return Path(text.removeprefix(_SQLITE))
    scheme, _, rest = text.partition(":")
    if scheme in SCHEMES and rest.startswith("//"):
        return ServerAddress.parse(text)
    raise ConfigError(
        f"a database at {scheme}: cannot be queried",
        hint="give mysql+pymysql://USER:PASSWORD@HOST/DATABASE, or the path of a SQLite file",
    )


def is_url(text: str) -> bool:
    """Return whether `text` is a URL, which may hold a password, and no path; `Path` makes one slash of two."""
    return _URL.match(text) is not None
