"""The task ehrsql: answer a question about hospital records with a SQL statement, or abstain."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import cache
from importlib.resources import files

from sql_agent.config.settings import Settings
from sql_agent.database import Database
from sql_agent.reward.judges.items import Words
from sql_agent.schemas import Lang, Question
from sql_agent.tasks.ehrsql.named_values import named_values
from sql_agent.tasks.ehrsql.questions import REFUSAL, of_split, read_questions
from sql_agent.tasks.ehrsql.result_match import as_run, same_result
from sql_agent.tasks.spider.folder import data_dir, default_questions
from sql_agent.tasks.spider.judge import Comparison, ExecutionJudge
from sql_agent.tasks.spider.spider_task import TASK as SPIDER
from sql_agent.tasks.spider.spider_task import sqlite_file, with_tables

_LAYOUT = "a folder with database/mimic_iv/mimic_iv.sqlite, train.json and valid.json (docs/ehrsql.md)"


def describe(_lang: Lang, database: Database, settings: Settings) -> str:
    """Return the system prompt of the workflow check-rewrite: the tables, and what their names do not tell."""
    return with_tables(_prompt("conventions.txt"), database, settings)


def instructions(_lang: Lang, database: Database, settings: Settings) -> str:
    """Return the system prompt of the workflow react: the same, and how to answer."""
    return with_tables(_prompt("conventions.txt") + _prompt("react.txt"), database, settings)


def question_text(question: Question, database: Database) -> str:
    """Return the question with the values of the database that it names."""
    found = ", ".join(map(str, named_values(sqlite_file(database), question.question)))
    return f"{question.question}\nValues: {found or 'none'}"


def make_judge(settings: Settings, words: Mapping[Lang, Words], *, alone: bool = False) -> ExecutionJudge:
    """Return the judge that compares results by the rules of the shared task."""
    return ExecutionJudge(settings, words, Comparison("ehrsql/1", as_run, same_result))


def prepare(settings: Settings, say: Callable[[str], None]) -> None:
    """Print the files of the run. Raises ConfigError when there is no data."""
    folder = data_dir(settings)
    files_of = [default_questions(settings, split).name for split in ("train", "val")]
    say(f"Questions of {folder}: training {files_of[0]}, validation {files_of[1]}")


@cache
def _prompt(name: str) -> str:
    return files("sql_agent.tasks.ehrsql").joinpath("prompts", name).read_text(encoding="utf-8")


TASK = replace(
    SPIDER,
    name="ehrsql",
    tool_description="Run one read-only SQLite SELECT on the hospital's tables and get the rows as JSON.",
    disclaimer="For research on questions to databases, not medical advice.",
    describe=describe,
    instructions=instructions,
    question_text=question_text,
    checks_results=False,
    questions_hint=f"give --data-dir DIR: {_LAYOUT}",
    prepare=prepare,
    read_questions=read_questions,
    of_split=of_split,
    words={lang: Words(refusals=(REFUSAL,)) for lang in ("en", "zh")},
    make_judge=make_judge,
)
