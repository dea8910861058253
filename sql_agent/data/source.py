"""Find the database that the settings name."""

from __future__ import annotations

from sql_agent.config.settings import DatabaseServerSettings, Settings
from sql_agent.database import Source, parse_source


def given_source(settings: Settings) -> Source | None:
    """Return `database.path`, else the database of DATABASE_URL; None where neither is set.

    Raises ConfigError for a URL that names no database that can be queried.
    """
    if settings.database.path is not None:
        return settings.database.path
    url = DatabaseServerSettings().url
    return parse_source(url.get_secret_value()) if url is not None and url.get_secret_value() else None
