"""Build the database and the judge that the settings ask for."""

from __future__ import annotations

from sql_agent.config import Settings, TeacherSettings
from sql_agent.database import SqliteDatabase, open_database
from sql_agent.locations import database_path
from sql_agent.reward import Judge, make_judge


def configured_database(settings: Settings) -> SqliteDatabase:
    """Open the database of `settings`. Raises DatabaseFileError when it is missing, empty or of another schema."""
    return open_database(database_path(settings), settings.database_limits())


def configured_judge(settings: Settings) -> Judge:
    """The judge of `settings`, with the teacher's endpoint from the environment. Raises ConfigError if incomplete."""
    teacher = TeacherSettings()
    return make_judge(
        settings.judge.name,
        model=teacher.model,
        base_url=teacher.base_url,
        api_key=teacher.api_key.get_secret_value() if teacher.api_key else None,
        timeout_s=settings.judge.timeout_s,
    )
