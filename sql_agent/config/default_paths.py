"""Where the files of a run are when the user named none: the sample of the chosen language, and questions by name."""

from __future__ import annotations

from pathlib import Path

from sql_agent.config.paths import VAR
from sql_agent.config.settings import Settings
from sql_agent.errors import ConfigError
from sql_agent.schemas import Lang


def database_path(settings: Settings) -> Path:
    """The SQLite file to query: `database.path`, else the sample of `lang`."""
    return settings.database.path or sample_path(settings.lang)


def sample_path(lang: Lang) -> Path:
    """Where the sample of a language is kept."""
    return VAR / f"sample_{lang}.db"


def questions_folder(database: Path) -> Path:
    """Where the questions about a database are kept unless the user says where."""
    return VAR / f"questions_{database.stem}"


def question_file(settings: Settings, split: str) -> Path:
    """The question file of a split ("train" or "val"): the configured one, else the one made for the database.

    Raises ConfigError when it does not exist.
    """
    given = {"train": settings.data.train_file, "val": settings.data.val_file}[split]
    database = database_path(settings)
    path = given or questions_folder(database) / f"{split}.parquet"
    if not path.exists():
        raise ConfigError(
            f"no {split} questions at {path}",
            hint=f"give data.{split}_file=PATH, or run `sql-agent data questions --db {database}`",
        )
    return path
