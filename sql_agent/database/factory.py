"""Open the database that the settings name."""

from __future__ import annotations

from sql_agent.config.default_paths import database_path
from sql_agent.config.settings import Settings
from sql_agent.database import SqliteDatabase, open_database


def database_from_settings(settings: Settings) -> SqliteDatabase:
    """Open the database of `settings`. Raises DatabaseFileError when it is missing, empty or of another schema."""
    return open_database(database_path(settings), settings.database_limits())
