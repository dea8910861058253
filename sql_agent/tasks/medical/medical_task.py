"""The medical task: its sample database, question files and prompts."""

from __future__ import annotations

import tomllib
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any, get_args

from sql_agent.config.settings import Settings
from sql_agent.config.settings_schema import VAR
from sql_agent.database import Database, Source
from sql_agent.errors import DataError
from sql_agent.questions.question_columns import language
from sql_agent.questions.question_files import load_questions
from sql_agent.reward.judges.items import Words
from sql_agent.schemas import Lang, Question, Style
from sql_agent.system.files import prompt_file
from sql_agent.tasks.described import generate
from sql_agent.tasks.described.described_task import with_named_values
from sql_agent.tasks.described.description import Description, fitted, read_description
from sql_agent.tasks.described.generate import Made
from sql_agent.tasks.described.table_rows import read_database
from sql_agent.tasks.medical.sample import build_database, load_facts
from sql_agent.tasks.medical.tables import NAME_COLUMNS, SCHEMA, few_values
from sql_agent.tasks.task import Task, given_source, lacks_questions


def sample_path(lang: Lang) -> Path:
    return VAR / f"sample_{lang}.db"


def questions_folder(database: Source, style: Style) -> Path:
    """Return the default folder of the questions of `style` about `database`."""
    return VAR / (f"questions_{database.stem}" + ("" if style == "mixed" else f"_{style}"))


def default_database(settings: Settings) -> Path:
    return sample_path(settings.lang)


def default_questions(settings: Settings, split: str) -> Path:
    """Return the default question file of `split` about the database of `settings`; the file may not exist."""
    database = given_source(settings) or sample_path(settings.lang)
    return questions_folder(database, settings.data.style) / f"{split}.parquet"


def ensure_sample_database(settings: Settings, say: Callable[[str], None]) -> None:
    """Make the sample database if it is missing and a run with `settings` queries it; natural questions always do.

    Raises DataError when the file cannot be written.
    """
    path = sample_path(settings.lang)
    is_queried = given_source(settings) is None or settings.data.natural_questions > 0
    if is_queried and not path.exists():
        counts = build_database(load_facts(), settings.lang, path)
        say(f"Made the sample database {path}: {counts['drugs_info']} drugs, {counts['disease']} diseases")


def ensure_sample(settings: Settings, say: Callable[[str], None]) -> None:
    """Make the sample database and its question files if a run with `settings` needs them and they are missing.

    Raises DataError when a file cannot be written.
    """
    ensure_sample_database(settings, say)
    if given_source(settings) is not None:
        return
    path = sample_path(settings.lang)
    if lacks_questions(settings, default_questions):
        folder = questions_folder(path, settings.data.style)
        made = make_question_files(path, folder, settings.lang, style=settings.data.style)
        say(f"Made {sum(map(len, made.values()))} questions about it in {folder}")


def make_question_files(database: Source, folder: Path, lang: Lang | None, **options: Any) -> Made:
    """Write train, val and test questions about `database` to `folder`, and return them by split.

    `lang` None means the language of the rows' names. `options` and errors are those of `generate.make_question_files`.
    """
    read = read_database(database, SCHEMA)
    if lang is None:
        found = [str(name) for table, column in NAME_COLUMNS.items() for name in read.tables[table].cells(column)]
        lang = "zh" if 2 * sum(language(name) == "zh" for name in found) > len(found) else "en"
    described = fitted(description(lang), read)
    return generate.make_question_files(described, database, TASK, folder, **options)


@cache
def description(lang: Lang) -> Description:
    return read_description(Path(__file__).with_name("descriptions") / f"{lang}.toml")


def natural_questions(lang: Lang) -> list[Question]:
    name = sample_path(lang).stem
    path = Path(__file__).with_name("natural") / f"{lang}.jsonl"
    return [question.model_copy(update={"database": name}) for question in load_questions(path)]


def real_questions(lang: Lang) -> list[Question]:
    """Return outsiders' questions in `lang` about a real database, or an empty list."""
    path = Path(__file__).with_name("natural") / f"real_{lang}.jsonl"
    return load_questions(path) if path.exists() else []


def named_database(_settings: Settings, name: str) -> Path:
    """Return the sample database that a question names. Raises DataError for an unknown name."""
    samples = {path.stem: path for path in map(sample_path, get_args(Lang))}
    if name not in samples:
        raise DataError(
            f"a question names the database {name!r}; the task medical has only {' and '.join(samples)}",
            hint="leave the question's `database` empty and set database.path=FILE",
        )
    return samples[name]


def instructions(lang: Lang, database: Database, _settings: Settings) -> str:
    return _with_tables("system", lang, database)


def describe(lang: Lang, database: Database, _settings: Settings) -> str:
    return _with_tables("describe", lang, database)


def _with_tables(name: str, lang: Lang, database: Database) -> str:
    lines = []
    for table, columns in database.schema.columns.items():
        known, few = column_labels(lang).get(table, {}), few_values(database, table)
        described = (
            " ".join(filter(None, (column, known.get(column), "|".join(few.get(column, ()))))) for column in columns
        )
        lines.append(f"{table}({', '.join(described)})")
    text = prompt_file(__file__, f"{name}.{lang}.txt").replace("{dialect}", database.dialect.title)
    return text.replace("{tables}", "\n".join(lines)).strip()


@cache
def _question_text(lang: Lang) -> Callable[[Question, Database], str]:
    return with_named_values(description(lang))


@cache
def column_labels(lang: Lang) -> dict[str, dict[str, str]]:
    """Return the meanings of columns by table and column. English has none, because the columns' names are English."""
    return {
        name: {key: column.meaning for key, column in table.columns.items() if column.meaning}
        for name, table in description(lang).tables.items()
    }


_WORDS = tomllib.loads(Path(__file__).with_name("words.toml").read_text("utf-8"))
TASK = Task(
    name="medical",
    schema=SCHEMA,
    tool_description="Run one read-only {dialect} SELECT on the medical tables drugs_info and disease and get the rows "
    "as JSON.",
    disclaimer="For research on retrieval, not medical advice.",
    describe=describe,
    instructions=instructions,
    labels=column_labels,
    question_text=lambda question, database: _question_text(question.lang)(question, database),
    default_database=default_database,
    default_questions=default_questions,
    questions_hint="run: sql-agent data questions --db {database}",
    prepare=ensure_sample,
    prepare_database=ensure_sample_database,
    named_database=named_database,
    natural_questions=natural_questions,
    real_questions=real_questions,
    words={lang: Words.model_validate(_WORDS[lang]) for lang in get_args(Lang)},
)
