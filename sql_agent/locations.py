"""Where the files of a run are when the user named none: the sample of the chosen language, and questions by name."""

from __future__ import annotations

from pathlib import Path

from sql_agent.config import Settings
from sql_agent.errors import ConfigError
from sql_agent.paths import VAR


def database_path(settings: Settings) -> Path:
    """The SQLite file to query: `database.path`, else the sample of `lang`."""
    return settings.database.path or VAR / f"sample_{settings.lang}.db"


def questions_folder(settings: Settings) -> Path:
    """Where `python -m sql_agent.data questions` puts the questions about that database by default."""
    return VAR / f"questions_{database_path(settings).stem}"


def question_file(settings: Settings, split: str) -> Path:
    """The question file of a split ("train" or "val"): the configured one, else the one made for the database.

    Raises ConfigError when it does not exist.
    """
    given = {"train": settings.data.train_file, "val": settings.data.val_file}[split]
    path = given or questions_folder(settings) / f"{split}.parquet"
    if not path.exists():
        raise ConfigError(
            f"no {split} questions at {path}",
            hint=f"give --{split}-file, or run `python -m sql_agent.data questions --db {database_path(settings)}`",
        )
    return path
