"""The task spider: answer a question about one of many SQLite databases with a SELECT statement."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable
from contextlib import closing
from functools import lru_cache
from pathlib import Path

from sql_agent.config.settings import Settings
from sql_agent.database import Database
from sql_agent.database.schema import quoted
from sql_agent.database.sqlite.connection import read_only_connection
from sql_agent.errors import ConfigError
from sql_agent.schemas import Lang
from sql_agent.system.files import prompt_file
from sql_agent.tasks.spider.folder import (
    LAYOUT,
    SCHEMA,
    data_dir,
    default_database,
    default_questions,
    named_database,
    only_database,
)
from sql_agent.tasks.spider.judge import make_judge
from sql_agent.tasks.spider.questions import held_out_databases, of_split, read_questions
from sql_agent.tasks.task import Task

_SAMPLED_ROWS = 200
_MAX_VALUE_CHARS = 30  # maximum; a longer text is prose, which no WHERE compares as a whole
_WIDEST = 100  # maximum number of columns of a shortened table
CUT = "-- ..."


@lru_cache(maxsize=512)
def schema_text(path: Path, *, max_chars: int, values: int) -> str:
    """Return CREATE TABLE statements for the database at `path`, in at most `max_chars` characters.

    Up to `values` frequent values follow each text column. To shorten the text, first the values are left out, then the
    types, then the last columns of the widest tables.
    """
    forms = [(values, True, None), (0, True, None), *((0, False, width) for width in (None, *range(_WIDEST, 0, -1)))]
    with closing(read_only_connection(path)) as connection:
        names = connection.execute("SELECT name FROM sqlite_master WHERE type = 'table' AND name NOT LIKE 'sqlite\\_%' "
                                   "ESCAPE '\\' ORDER BY rowid").fetchall()  # fmt: skip
        for form in forms:
            text = "\n".join(_table_text(connection, name, *form) for (name,) in names)
            if len(text) <= max_chars:
                break
    return text[:max_chars]


def _table_text(connection: sqlite3.Connection, table: str, values: int, typed: bool, width: int | None) -> str:
    """Return the CREATE TABLE statement of a table, of its first `width` columns."""
    columns = connection.execute(f"PRAGMA table_info({quoted(table)})").fetchall()
    lines = []
    for _, column, declared, *_ in columns[:width]:
        kind = declared.partition("(")[0].strip().lower()
        is_text = not kind or any(word in kind for word in ("char", "text", "clob", "string"))
        found = _values(connection, table, column, values) if values and is_text else ()
        shown = f" /* {', '.join(found)} */" if found else ""
        lines.append(f"{_shown(column)} {kind if typed else ''}".strip() + shown)
    if keys := [_shown(row[1]) for row in columns if row[5]]:
        lines.append(f"primary key ({', '.join(keys)})")
    lines += reversed(
        [
            f"foreign key ({_shown(row[3])}) references {_shown(row[2])}" + (f" ({_shown(row[4])})" if row[4] else "")
            for row in connection.execute(f"PRAGMA foreign_key_list({quoted(table)})")
        ]
    )
    cut = f"\n  {CUT}" if width and width < len(columns) else ""
    return f"CREATE TABLE {_shown(table)} (\n  " + ",\n  ".join(lines) + f"{cut}\n)"


def _values(connection: sqlite3.Connection, table: str, column: str, count: int) -> tuple[str, ...]:
    rows = f"SELECT {quoted(column)} AS value FROM {quoted(table)} LIMIT {_SAMPLED_ROWS}"
    found = connection.execute(
        f"SELECT value, count(*) FROM ({rows}) WHERE typeof(value) = 'text' AND trim(value) <> '' "
        f"AND length(value) <= {_MAX_VALUE_CHARS} GROUP BY value ORDER BY 2 DESC, value LIMIT {count}"
    )
    return tuple("'" + " ".join(value.split()).replace("'", "''").replace("*/", "* /") + "'" for value, _ in found)


def _shown(name: str) -> str:
    return name if name.isidentifier() else '"' + name.replace('"', '""') + '"'


def describe(_lang: Lang, database: Database, settings: Settings) -> str:
    return with_tables(prompt_file(__file__, "describe.txt"), database, settings)


def instructions(_lang: Lang, database: Database, settings: Settings) -> str:
    return with_tables(prompt_file(__file__, "system.txt"), database, settings)


def prepare(settings: Settings, say: Callable[[str], None]) -> None:
    """Print the databases that are held out of training. Raises ConfigError when there is no data."""
    if settings.spider.data_dir is None and settings.database.path is not None:
        return  # one SQLite file is asked about, so none is held out
    folder = data_dir(settings)
    if path := only_database(settings):
        dev = default_questions(settings, "val").name
        say(f"Training and validation are about the one database {path.stem}; the validation file is {dev}")
    if names := held_out_databases(settings):
        say(f"Held out of training from the databases in {folder}: {', '.join(names)}")


def with_tables(template: str, database: Database, settings: Settings) -> str:
    """Return `template` with the schema of `database` in place of {tables}. Raises what `sqlite_file` raises."""
    limits = settings.spider
    tables = schema_text(sqlite_file(database), max_chars=limits.schema_chars, values=limits.schema_values)
    return template.replace("{tables}", tables).strip()


def sqlite_file(database: Database) -> Path:
    """Return the file of `database`. Raises ConfigError for a database on a server."""
    if not isinstance(database.source, Path):
        raise ConfigError(f"the task queries SQLite files, not {database.source}", hint="leave DATABASE_URL empty")
    return database.source


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
    rule=lambda _calls: 0.0,  # only the result of the final statement is rewarded
)
