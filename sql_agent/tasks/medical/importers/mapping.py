"""Turn a record of a source into a row of one of the two tables, as a mapping file says.

A mapping file is TOML, with a section for each table:

    separator = "; "                # between the parts of a cell; default "；"

    [drugs_info]
    from = "products"               # the source's table, where it has several
    when = ["Brand", "Generic"]     # only records with one of these fields; default: all
    med_name = ["Brand", "Generic"] # the name: the first of these that a record has
    indication = "Uses"             # another column: a field, or several, one after the other
    labelled = ["description"]      # the columns in which each part follows the name of its field
"""

from __future__ import annotations

import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from sql_agent.errors import ConfigError
from sql_agent.system.validation import first_problem
from sql_agent.tasks.medical.importers.records import Record, Rejected, Row
from sql_agent.tasks.medical.tables import NAME_COLUMNS, TABLES

_MAPPINGS = Path(__file__).parent / "mappings"
# Columns that no source gives: the row's number, and when it was written.
NOT_READ = frozenset({"id", "created_at", "create_at", "update_at"})


class _Table(BaseModel):
    """Represents a section of a mapping file; every key that is not named here is a column."""

    model_config = ConfigDict(extra="allow")
    source: str = Field("", alias="from")
    when: tuple[str, ...] = ()
    labelled: tuple[str, ...] = ()

    @property
    def columns(self) -> dict[str, tuple[str, ...]]:
        given = (self.model_extra or {}).items()
        return {column: (fields,) if isinstance(fields, str) else tuple(fields) for column, fields in given}


@dataclass(frozen=True)
class TableMapping:
    """Says which fields of a record are which columns, by table."""

    tables: Mapping[str, _Table]
    separator: str = "；"

    @classmethod
    def load(cls, path: Path) -> TableMapping:
        """Read a mapping file. Raises ConfigError that names what is wrong with it."""
        try:
            content = tomllib.loads(path.read_text(encoding="utf-8"))
        except (OSError, ValueError) as error:
            raise ConfigError(f"cannot read the mapping {path}: {error}") from error
        separator = content.pop("separator", "；")
        hint = "docs/data.md has an example"
        if unknown := sorted(content.keys() - TABLES.keys()):
            raise ConfigError(f"{path}: there is no table {', '.join(unknown)}", hint=f"tables: {', '.join(TABLES)}")
        tables = {}
        for name, section in content.items():
            try:
                tables[name] = _Table.model_validate(section)
            except ValidationError as error:
                raise ConfigError(f"{path}: {name}: {first_problem(error)}", hint=hint) from error
            _check(path, name, tables[name])
        if not isinstance(separator, str) or not tables:
            raise ConfigError(f"{path} maps no table, or its separator is no text", hint=hint)
        return cls(tables, separator)

    @classmethod
    def packaged(cls, name: str) -> TableMapping:
        """Return the mapping for a source that is known by `name`: cmekg or openfda."""
        return cls.load(_MAPPINGS / f"{name}.toml")

    @classmethod
    def same_names(cls) -> TableMapping:
        """Return the mapping for sources whose tables and columns are named as ours."""
        sections = {
            table: {"from": table, "when": [NAME_COLUMNS[table]]}
            | {name: name for name in columns if name not in NOT_READ}
            for table, columns in TABLES.items()
        }
        return cls({table: _Table.model_validate(section) for table, section in sections.items()})

    def row(self, record: Record) -> Row | Rejected:
        """Return the row that `record` is, or why it is none."""
        name, table = self._table_of(record)
        if table is None:
            return Rejected(record.place, name)
        values: dict[str, str] = {}
        for column, fields in table.columns.items():
            try:
                parts = [(field, text) for field in fields for text in _texts(record.get(field))]
            except TypeError as error:
                return Rejected(record.place, f"{column} is no text", str(error))
            if not parts:
                continue
            if column == NAME_COLUMNS[name]:
                values[column] = parts[0][1]
            else:
                shown = [f"{field}：{text}" if column in table.labelled else text for field, text in parts]
                values[column] = self.separator.join(dict.fromkeys(shown))
        return _checked(Row(record.place, name, values), table)

    def _table_of(self, record: Record) -> tuple[str, _Table | None]:
        """Return the first table that takes `record`, or the reason why none does."""
        for name, table in self.tables.items():
            of_table = not record.group or not table.source or record.group == table.source
            if of_table and (not table.when or any(record.get(field) for field in table.when)):
                return name, table
        return f"it is no row of {' or '.join(self.tables)}: it has none of the fields that tell", None


def _check(path: Path, name: str, table: _Table) -> None:
    known = [column for column in TABLES[name] if column not in NOT_READ]
    unknown = sorted({*table.columns, *table.labelled} - {*known})
    if unknown:
        raise ConfigError(f"{path}: {name} has no column {', '.join(unknown)}", hint=f"columns: {', '.join(known)}")
    if NAME_COLUMNS[name] not in table.columns:
        raise ConfigError(f"{path}: {name} needs {NAME_COLUMNS[name]}", hint="say which field holds the name")


def _checked(row: Row, table: _Table) -> Row | Rejected:
    name = NAME_COLUMNS[row.table]
    if name not in row.values:
        return Rejected(row.place, f"no {name}: {', '.join(table.columns[name])} is empty")
    for column, text in row.values.items():
        if "\0" in text or any("\ud800" <= character <= "\udfff" for character in text):
            return Rejected(row.place, f"{column} holds bytes that are no UTF-8 text")
    if len(row.values) == 1:
        return Rejected(row.place, "it has a name and nothing else")
    return row


def _texts(value: Any) -> Sequence[str]:
    """Return the texts of a field: none, one, or those of a list. Raises TypeError for anything else."""
    if value is None:
        return ()
    if isinstance(value, list | tuple):
        return [text for item in value for text in _texts(item)]
    if isinstance(value, bytes):
        value = value.decode("utf-8", "surrogateescape")
    if not isinstance(value, str | int | float):
        raise TypeError(f"a {type(value).__name__} is no text")
    text = " ".join(str(value).split())
    return [text] if text else ()
