"""Define the task spider: a question about one of many SQLite databases is answered with a SELECT statement."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cache
from importlib.resources import files
from pathlib import Path

from sql_agent.config.settings import Settings
from sql_agent.database import Database
from sql_agent.errors import ConfigError
from sql_agent.schemas import Lang, QueryCall
from sql_agent.tasks.spider.folder import LAYOUT, data_dir, default_database, default_questions, named_database
from sql_agent.tasks.spider.judge import make_judge
from sql_agent.tasks.spider.questions import held_out_databases, of_split, read_questions
from sql_agent.tasks.spider.schema import SCHEMA
from sql_agent.tasks.spider.schema_text import schema_text
from sql_agent.tasks.task import Task


def describe(_lang: Lang, database: Database, settings: Settings) -> str:
    """Return the system prompt of the roles: the tables of the database."""
    return _filled("describe.txt", database, settings)


def instructions(_lang: Lang, database: Database, settings: Settings) -> str:
    """Return the system prompt of an agent that calls the tool: the tables, and how to answer."""
    return _filled("react.txt", database, settings)


def prepare(settings: Settings, say: Callable[[str], None]) -> None:
    """Say which databases are held out of training; the data itself is never made. Raises ConfigError without it."""
    if settings.spider.data_dir is None and settings.database.path is not None:
        return  # questions of one's own about a single file
    folder = data_dir(settings)
    if names := held_out_databases(settings):
        say(f"Held out of training, of the databases in {folder}: {', '.join(names)}")


def no_rule(_calls: Sequence[QueryCall]) -> float:
    """Return 0.0, because the result of the final statement is all that counts."""
    return 0.0


def _filled(prompt: str, database: Database, settings: Settings) -> str:
    spider = settings.spider
    if not isinstance(database.source, Path):
        raise ConfigError(f"the task spider asks SQLite files, not {database.source}", hint="leave DATABASE_URL empty")
    tables = schema_text(database.source, max_chars=spider.schema_chars, values=spider.schema_values)
    return _prompt(prompt).replace("{tables}", tables).strip()


@cache
def _prompt(name: str) -> str:
    return files("sql_agent.tasks.spider").joinpath("prompts", name).read_text(encoding="utf-8")


TASK = Task(
    name="spider",
    schema=SCHEMA,
    tool_description="Run one read-only SQLite SELECT on the database and get the rows as JSON.",
    disclaimer="For research on questions to databases.",
    describe=describe,
    instructions=instructions,
    answer_is_sql=True,
    default_database=default_database,
    default_questions=default_questions,
    questions_hint=f"give --data-dir DIR: {LAYOUT}",
    prepare=prepare,
    named_database=named_database,
    read_questions=read_questions,
    of_split=of_split,
    make_judge=make_judge,
    rule=no_rule,
)
