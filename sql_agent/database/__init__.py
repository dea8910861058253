"""Read-only access to the medical database: a guard in front, limits behind."""

from __future__ import annotations

from pathlib import Path

from sql_agent.database.limits import Limits
from sql_agent.database.schema import MEDICAL_TABLES
from sql_agent.database.sqlite import SqliteDatabase

__all__ = ["MEDICAL_TABLES", "Limits", "SqliteDatabase", "open_database"]


def open_database(path: str | Path, limits: Limits | None = None) -> SqliteDatabase:
    """Open the SQLite database at `path`. Raises DatabaseFileError when it is not a filled medical database."""
    return SqliteDatabase(path, limits)
