"""Read-only access to a database: a guard checks each statement, limits bound it; the task names the tables."""

from __future__ import annotations

from pathlib import Path

from sql_agent.database.pool import DatabasePool
from sql_agent.database.schema import Naming, RequiredSchema
from sql_agent.database.sqlite import SqliteDatabase
from sql_agent.schemas import QueryLimits

__all__ = ["DatabasePool", "Naming", "RequiredSchema", "SqliteDatabase", "open_database"]


def open_database(path: str | Path, required: RequiredSchema, limits: QueryLimits | None = None) -> SqliteDatabase:
    """Open the SQLite database at `path`. Raises DatabaseFileError when it lacks something of `required`."""
    return SqliteDatabase(path, required, limits)
