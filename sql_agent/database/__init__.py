"""Query a database read-only: a guard checks each statement, and time, memory and answers are limited."""

from sql_agent.database.database import Database, DatabasePool
from sql_agent.database.local import open_database
from sql_agent.database.schema import Naming, RequiredSchema
from sql_agent.database.source import Source, is_url, open_source, parse_source

__all__ = [
    "Database",
    "DatabasePool",
    "Naming",
    "RequiredSchema",
    "Source",
    "is_url",
    "open_database",
    "open_source",
    "parse_source",
]
