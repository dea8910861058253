"""Find the databases and question files in a folder with the layout of Spider."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

from sql_agent.config.settings import Settings
from sql_agent.database import RequiredSchema
from sql_agent.errors import ConfigError, DataError
from sql_agent.tasks.task import given_file

LAYOUT = "a folder with database/NAME/NAME.sqlite and train_spider.json, such as Spider's own"
# File names in the order of search: those of Spider, then those of parquet copies.
_FILES = {
    "train": ("train_spider.json", "train.json", "train.parquet", "train-*.parquet"),
    "test": (
        "dev.json",
        "dev.parquet",
        "validation.parquet",
        "valid.json",
        "validation-*.parquet",
        "test.json",
        "test.parquet",
    ),
}
_DATABASES = ("database/{name}/{name}.sqlite", "{name}/{name}.sqlite", "{name}.sqlite")


def data_dir(settings: Settings) -> Path:
    """Return `spider.data_dir`. Raises ConfigError when it is not set, or not a folder."""
    folder = settings.spider.data_dir
    if folder is None:
        raise ConfigError(f"the task {settings.task} has no data", hint=f"give --data-dir DIR: {LAYOUT}")
    if not folder.is_dir():
        raise ConfigError(f"spider.data_dir={folder} is not a folder", hint=f"give {LAYOUT}")
    return folder


def default_database(settings: Settings) -> Path:
    """Return the database of questions that name none: `database.path`, else the folder's first database by name."""
    if (path := given_file(settings)) is not None:
        return path
    folder = data_dir(settings)
    found = _databases(folder)
    if not found:
        raise ConfigError(f"there is no database in {folder}", hint=f"give {LAYOUT}")
    return found[0]


def only_database(settings: Settings) -> Path | None:
    """Return the database of a folder with one database and a development file; None for other folders.

    Questions about such a database are validated on the development file, because no database can be held out.
    """
    folder = data_dir(settings)
    found = _databases(folder)
    return found[0] if len(found) == 1 and any(_existing(folder, "test")) else None


def named_database(settings: Settings, name: str) -> Path:
    """Return the file of the database `name`. Raises DataError for an unknown name."""
    folder = data_dir(settings)
    paths = [folder / pattern.format(name=name) for pattern in _DATABASES]
    found = next((path for path in paths if Path(name).name == name and path.is_file()), None)
    if found is None:
        raise DataError(f"there is no database {name!r} in {folder}", hint=f"add {paths[0]}, or correct the name")
    return found


def database_variants(path: Path) -> Sequence[Path]:
    """Return `path` and, if it is NAME/NAME.sqlite, the other SQLite files of the folder.

    Test suites have such variants, which are the same tables with other rows, to distinguish statements whose results
    agree by chance. If the names of file and folder differ, there are no variants.
    """
    if path.stem != path.parent.name:
        return (path,)
    return (path, *(other for other in sorted(path.parent.glob("*.sqlite")) if other != path))


def default_questions(settings: Settings, split: str) -> Path:
    """Return the question file of `split`, or the path of Spider's own file if there is none.

    The file of val is the training file, or the development file if the folder has one database. The file of test is
    the development file, else the training file.
    """
    folder = data_dir(settings)
    from_dev = split == "test" or (split == "val" and only_database(settings) is not None)
    kinds = ("test", "train") if from_dev else ("train",)
    return next((path for kind in kinds for path in _existing(folder, kind)), folder / _FILES[kinds[0]][0])


def _databases(folder: Path) -> list[Path]:
    return sorted({path for pattern in _DATABASES for path in folder.glob(pattern.format(name="*"))})


def _existing(folder: Path, kind: str) -> Iterator[Path]:
    for pattern in _FILES[kind]:
        yield from sorted(folder.glob(pattern))


SCHEMA = RequiredSchema(None, hint=f"give --data-dir DIR: {LAYOUT}")
