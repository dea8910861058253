"""Parse a command-line option that names a database."""

from __future__ import annotations

import argparse

from sql_agent.database import Source, parse_source
from sql_agent.errors import ConfigError

DATABASE = "SQLite file, or mysql+pymysql://USER:PASSWORD@HOST/DATABASE,"


def database(text: str) -> Source:
    """Parse a path or a URL. Raises ArgumentTypeError, whose message contains no password."""
    try:
        return parse_source(text)
    except ConfigError as error:
        raise argparse.ArgumentTypeError(str(error)) from error
