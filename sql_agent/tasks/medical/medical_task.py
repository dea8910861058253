"""Define the medical task: questions about drugs and diseases."""

from __future__ import annotations

import tomllib
from functools import cache
from importlib.resources import files
from typing import get_args

from sql_agent.config.settings import Settings
from sql_agent.database import Database
from sql_agent.reward.judges.items import Words
from sql_agent.schemas import Lang
from sql_agent.tasks.medical.prepare import (
    default_database,
    default_questions,
    ensure_sample,
    ensure_sample_database,
    named_database,
    natural_questions,
)
from sql_agent.tasks.medical.tables import SCHEMA
from sql_agent.tasks.task import Task


def instructions(lang: Lang, database: Database, _settings: Settings) -> str:
    """Return the system prompt of the workflow react in `lang`, with the tables of the database."""
    return _with_tables(f"agent.{lang}.txt", lang, database)


def describe(lang: Lang, database: Database, _settings: Settings) -> str:
    """Return the system prompt of a workflow's roles in `lang`: the form of an answer and the tables."""
    return _with_tables(f"describe.{lang}.txt", lang, database)


def _with_tables(prompt: str, lang: Lang, database: Database) -> str:
    meanings = _column_meanings(lang)
    lines = []
    for table, columns in database.schema.columns.items():
        known = meanings.get(table, {})
        described = ", ".join(f"{column} {known[column]}" if column in known else column for column in columns)
        lines.append(f"{table}({described})")
    text = _prompt_file(prompt).replace("{dialect}", database.dialect.title)
    return text.replace("{tables}", "\n".join(lines)).strip()


@cache
def _prompt_file(name: str) -> str:
    return files("sql_agent.tasks.medical").joinpath("prompts", name).read_text(encoding="utf-8")


@cache
def _column_meanings(lang: Lang) -> dict[str, dict[str, str]]:
    return tomllib.loads(_prompt_file("columns.zh.toml")) if lang == "zh" else {}


def _words() -> dict[Lang, Words]:
    text = files("sql_agent.tasks.medical").joinpath("words.toml").read_text(encoding="utf-8")
    return {lang: Words.model_validate(tomllib.loads(text)[lang]) for lang in get_args(Lang)}


WORDS = _words()
TASK = Task(
    name="medical",
    schema=SCHEMA,
    tool_description="Run one read-only {dialect} SELECT on the medical tables drugs_info and disease and get the rows "
    "as JSON.",
    disclaimer="For research on retrieval, not medical advice.",
    describe=describe,
    instructions=instructions,
    default_database=default_database,
    default_questions=default_questions,
    questions_hint="run: sql-agent data questions --db {database}",
    prepare=ensure_sample,
    prepare_database=ensure_sample_database,
    named_database=named_database,
    natural_questions=natural_questions,
    words=WORDS,
)
