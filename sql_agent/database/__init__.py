"""Read-only access to a database: a guard checks each statement, limits bound it; the task names the tables."""

from __future__ import annotations

from sql_agent.database.database import Database
from sql_agent.database.engine import Source
from sql_agent.database.factory import is_url, open_database, open_source, parse_source
from sql_agent.database.pool import DatabasePool
from sql_agent.database.schema import Naming, RequiredSchema

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
