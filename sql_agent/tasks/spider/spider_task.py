"""The task spider: answer a question about one of many SQLite databases with a SELECT statement."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Sequence
from contextlib import closing
from dataclasses import dataclass, replace
from functools import cache, lru_cache
from importlib.resources import files
from pathlib import Path

from sql_agent.config.settings import Settings
from sql_agent.database import Database
from sql_agent.database.schema import quoted
from sql_agent.database.sqlite.opening import read_only_connection
from sql_agent.errors import ConfigError
from sql_agent.schemas import Lang, QueryCall
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
_MAX_VALUE_CHARS = 30  # longer texts are prose, which no WHERE compares as a whole
CUT = "-- ..."


@dataclass(frozen=True)
class _Column:
    name: str
    type: str
    is_key: bool
    values: tuple[str, ...] = ()


@dataclass(frozen=True)
class _Table:
    name: str
    columns: tuple[_Column, ...]
    references: tuple[str, ...]


@lru_cache(maxsize=512)
def schema_text(path: Path, *, max_chars: int, values: int) -> str:
    """Return CREATE TABLE statements for the database at `path`, in at most `max_chars` characters.

    Up to `values` frequent values follow each text column. A longer text is shortened: first the values are left out,
    then the types, then the last columns of the widest tables.
    """
    with closing(read_only_connection(path)) as connection:
        tables = [_read_table(connection, name, values) for name in _table_names(connection)]
    bare = [replace(table, columns=tuple(replace(c, values=()) for c in table.columns)) for table in tables]
    untyped = [replace(table, columns=tuple(replace(c, type="") for c in table.columns)) for table in bare]
    for form in (tables, bare, untyped):
        if len(text := _text(form)) <= max_chars:
            return text
    width = max(len(table.columns) for table in tables)
    while width > 1 and len(text := _text(untyped, width)) > max_chars:
        width -= 1
    return text[:max_chars]


def _text(tables: Sequence[_Table], width: int | None = None) -> str:
    return "\n".join(_table_text(table, width or len(table.columns)) for table in tables)


def _table_text(table: _Table, width: int) -> str:
    keys = [column.name for column in table.columns if column.is_key]
    lines = [_column_text(column) for column in table.columns[:width]]
    if keys:
        lines.append(f"primary key ({', '.join(map(_shown, keys))})")
    lines += table.references
    cut = f"\n  {CUT}" if width < len(table.columns) else ""
    return f"CREATE TABLE {_shown(table.name)} (\n  " + ",\n  ".join(lines) + f"{cut}\n)"


def _column_text(column: _Column) -> str:
    text = f"{_shown(column.name)} {column.type}".strip()
    return f"{text} /* {', '.join(column.values)} */" if column.values else text


def _table_names(connection: sqlite3.Connection) -> list[str]:
    found = connection.execute("SELECT name FROM sqlite_master WHERE type = 'table' AND name NOT LIKE 'sqlite\\_%' "
                               "ESCAPE '\\' ORDER BY rowid")  # fmt: skip
    return [name for (name,) in found]


def _read_table(connection: sqlite3.Connection, name: str, values: int) -> _Table:
    columns = []
    for _, column, kind, _, _, key in connection.execute(f"PRAGMA table_info({quoted(name)})").fetchall():
        plain = kind.partition("(")[0].strip().lower()
        shown = _values(connection, name, column, values) if values and _is_text(plain) else ()
        columns.append(_Column(column, plain, bool(key), shown))
    references = [
        f"foreign key ({_shown(row[3])}) references {_shown(row[2])}" + (f" ({_shown(row[4])})" if row[4] else "")
        for row in connection.execute(f"PRAGMA foreign_key_list({quoted(name)})")
    ]
    return _Table(name, tuple(columns), tuple(reversed(references)))


def _values(connection: sqlite3.Connection, table: str, column: str, count: int) -> tuple[str, ...]:
    rows = f"SELECT {quoted(column)} AS value FROM {quoted(table)} LIMIT {_SAMPLED_ROWS}"
    found = connection.execute(
        f"SELECT value, count(*) FROM ({rows}) WHERE typeof(value) = 'text' AND trim(value) <> '' "
        f"AND length(value) <= {_MAX_VALUE_CHARS} GROUP BY value ORDER BY 2 DESC, value LIMIT {count}"
    )
    return tuple("'" + " ".join(value.split()).replace("'", "''").replace("*/", "* /") + "'" for value, _ in found)


def _is_text(kind: str) -> bool:
    return not kind or any(word in kind for word in ("char", "text", "clob", "string"))


def _shown(name: str) -> str:
    return name if name.isidentifier() else '"' + name.replace('"', '""') + '"'


def describe(_lang: Lang, database: Database, settings: Settings) -> str:
    """Return the system prompt of the workflow check-rewrite: the tables of the database."""
    return with_tables(_prompt("describe.txt"), database, settings)


def instructions(_lang: Lang, database: Database, settings: Settings) -> str:
    """Return the system prompt of the workflow react: the tables, and how to answer."""
    return with_tables(_prompt("react.txt"), database, settings)


def prepare(settings: Settings, say: Callable[[str], None]) -> None:
    """Print the databases that are held out of training. Raises ConfigError when there is no data."""
    if settings.spider.data_dir is None and settings.database.path is not None:
        return  # the user asks about one SQLite file
    folder = data_dir(settings)
    if path := only_database(settings):
        dev = default_questions(settings, "val").name
        say(f"One database, {path.stem}: train and validation are both about it; the validation is {dev}")
    if names := held_out_databases(settings):
        say(f"Held out of training, of the databases in {folder}: {', '.join(names)}")


def no_rule(_calls: Sequence[QueryCall]) -> float:
    """Return 0.0, because only the result of the final statement is rewarded."""
    return 0.0


def with_tables(template: str, database: Database, settings: Settings) -> str:
    """Return `template` with the schema of `database` in place of {tables}. Raises ConfigError without a file."""
    spider = settings.spider
    path = sqlite_file(database)
    tables = schema_text(path, max_chars=spider.schema_chars, values=spider.schema_values)
    return template.replace("{tables}", tables).strip()


def sqlite_file(database: Database) -> Path:
    """Return the file of `database`. Raises ConfigError for a database on a server."""
    if not isinstance(database.source, Path):
        raise ConfigError(f"the task queries SQLite files, not {database.source}", hint="leave DATABASE_URL empty")
    return database.source


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
