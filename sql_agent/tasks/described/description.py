"""Describe a database as data: the records of NAME.toml, how to read the file and how to write it."""

from __future__ import annotations

import json
import re
import tomllib
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Literal, Self

from pydantic import Field, ValidationError, model_validator

from sql_agent.errors import ConfigError
from sql_agent.schemas import Lang, Record
from sql_agent.system.messages import first_problem

Kind = Literal["name", "list", "text", "number", "date", "category", "flag", "id"]

_HEAD = """\
# The description of a database: what is in it, and how people ask for it. `sql-agent init` guessed it; correct it.
# label, plural  what people call a table or a column
# name           the column that names a row of the table
# kind           name, list (with its separator), text, number (with its unit), date, category, flag, or id
# ask            ways to ask for the column of one row; {name} becomes the row
# links          "table.column" that refers to "table.column"; contains: the first is a text with names of the second
"""
_BARE_KEY = re.compile(r"[A-Za-z0-9_-]+")


class Column(Record):
    """A column of a table.

    label      what people call the column; `plural` is for several of its items, or for what a number counts
    ask        ways to ask for the column of a row; "{name}" becomes the row
    separator  what separates the items of a list
    unit       unit of a number, such as kg
    values     the values of a category or a flag, if they are few; the model sees them
    """

    kind: Kind
    label: str = Field(min_length=1)
    plural: str = ""
    ask: tuple[str, ...] = ()
    separator: str = ""
    unit: str = ""
    values: tuple[str, ...] = ()

    @model_validator(mode="after")
    def _complete(self) -> Self:
        if self.kind == "list" and not self.separator:
            raise ValueError("a list needs a separator")
        if wrong := [text for text in self.ask if "{name}" not in text]:
            raise ValueError(f"a way to ask needs {{name}}: {wrong[0]!r}")
        return self

    @property
    def counts(self) -> bool:
        """Whether the column is a number of things, which its plural names."""
        return self.kind == "number" and bool(self.plural)

    @property
    def labels(self) -> str:
        """What people call several items of the column."""
        return self.plural or self.label


class Table(Record):
    """A table; `other_names` maps the name of a row to names that no cell contains, such as a brand."""

    label: str = Field(min_length=1)
    plural: str = Field(min_length=1)
    name: str | None = None
    columns: dict[str, Column] = Field(min_length=1)
    other_names: dict[str, tuple[str, ...]] = Field(default_factory=dict)

    @model_validator(mode="after")
    def _has_its_name(self) -> Self:
        if self.name is not None and self.name not in self.columns:
            raise ValueError(f"name = {self.name!r} is none of the columns")
        return self


class Link(Record):
    """A column that refers to rows of another table: a foreign key, or with `contains` a text with their names."""

    source: tuple[str, str]
    target: tuple[str, str]
    label: str
    contains: bool = False


class Description(Record):
    """A database: its language, its SQLite file (None: DATABASE_URL or database.path), its tables and links."""

    lang: Lang = "en"
    database: str | None = None
    tables: dict[str, Table] = Field(min_length=1)
    links: tuple[Link, ...] = ()

    @model_validator(mode="after")
    def _links_exist(self) -> Self:
        for link in self.links:
            for table, column in (link.source, link.target):
                if table not in self.tables or column not in self.tables[table].columns:
                    raise ValueError(f"a link names {table}.{column}, which is not described")
        return self


def read_description(path: Path) -> Description:
    """Read NAME.toml. Raises ConfigError when the file is missing, is not TOML, or describes nothing."""
    try:
        values = tomllib.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise ConfigError(
            f"cannot read the description {path}: {error.strerror}", hint=f"make it: sql-agent init DB --out {path}"
        ) from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise ConfigError(f"{path} is not valid TOML: {error}", hint="correct the line") from None
    try:
        return Description.model_validate(values)
    except ValidationError as error:
        raise ConfigError(
            f"{path} does not describe a database: {first_problem(error)}", hint="see docs/any_database.md"
        ) from None


def as_toml(description: Description) -> str:
    """Return the text of NAME.toml, which `read_description` reads."""
    lines = [_HEAD, f"lang = {_value(description.lang)}"]
    if description.database is not None:
        lines.append(f"database = {_value(description.database)}")
    for name, table in description.tables.items():
        path = f"tables.{_key(name)}"
        lines += ["", f"[{path}]", *_pairs(table, skip={"columns", "other_names"})]
        if table.other_names:
            lines += [f"[{path}.other_names]", *_lines(table.other_names)]
        for column_name, column in table.columns.items():
            lines += [f"[{path}.columns.{_key(column_name)}]", *_pairs(column)]
    for link in description.links:
        lines += ["", "[[links]]", *_pairs(link)]
    return "\n".join(lines) + "\n"


def _pairs(record: Record, skip: Iterable[str] = ()) -> Iterator[str]:
    return _lines(record.model_dump(exclude=set(skip), exclude_defaults=True))


def _lines(values: Mapping[str, object]) -> Iterator[str]:
    yield from (f"{_key(key)} = {_value(value)}" for key, value in values.items())


def _key(name: str) -> str:
    return name if _BARE_KEY.fullmatch(name) else _value(name)


def _value(value: object) -> str:
    """Return a text, a truth value or a list of texts as TOML, which shares these forms with JSON."""
    return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")
