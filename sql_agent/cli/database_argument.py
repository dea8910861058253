"""Read the value of an option that names a database."""

from __future__ import annotations

import argparse

from sql_agent.database import Source, parse_source
from sql_agent.errors import ConfigError

DATABASE = "SQLite file, or mysql+pymysql://USER:PASSWORD@HOST/DATABASE,"


def database(text: str) -> Source:
    """Read a path or a URL. Raises ArgumentTypeError, whose message never holds a password."""
    try:
        return parse_source(text)
    except ConfigError as error:
        raise argparse.ArgumentTypeError(str(error)) from error
