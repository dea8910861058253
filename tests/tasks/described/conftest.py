"""Three databases with their descriptions, as `sql-agent init` guesses them, and the questions made from these."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import pytest

from sql_agent.config.settings import load_settings
from sql_agent.schemas import Question
from sql_agent.tasks.described.described_task import described_task
from sql_agent.tasks.described.description import Description, as_toml, read_description
from sql_agent.tasks.described.generate import make_question_files
from sql_agent.tasks.described.guess_description import guess_description
from sql_agent.tasks.described.table_rows import read_database
from sql_agent.tasks.task import Task
from tests.tasks.described.databases import make_hospital, make_library, make_shop

_MAKE = {"shop": make_shop, "library": make_library, "hospital": make_hospital}


@dataclass(frozen=True)
class Described:
    """A database, its description in a file, what was said while guessing, its task and its questions by split."""

    path: Path
    file: Path
    description: Description
    said: list[str]
    task: Task
    made: dict[str, list[Question]]


@pytest.fixture(scope="session", params=sorted(_MAKE))
def described(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Described:
    """One of the three databases."""
    return _described(request.param, tmp_path_factory.mktemp(request.param))


@pytest.fixture(scope="session")
def shop(tmp_path_factory: pytest.TempPathFactory) -> Described:
    """The shop with five tables."""
    return _described("shop", tmp_path_factory.mktemp("one_shop"))


def _described(name: str, folder: Path) -> Described:
    path, said = _MAKE[name](folder / f"{name}.db"), list[str]()
    file = folder / f"{name}.toml"
    file.write_text(as_toml(guess_description(read_database(path), path.name, None, said.append)), encoding="utf-8")
    task, description = described_task(file), read_description(file)
    source = task.database_source(load_settings())
    made = make_question_files(description, source, task, folder / f"{name}_questions", per_type=10)
    return Described(path, file, description, said, task, made)
