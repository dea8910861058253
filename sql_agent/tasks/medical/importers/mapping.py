"""Turn a record of a source into a row of one of the two tables, by a mapping file: docs/data.md has an example."""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from sql_agent.errors import ConfigError
from sql_agent.system.messages import first_problem
from sql_agent.tasks.cells import texts_of, unreadable
from sql_agent.tasks.medical.tables import NAME_COLUMNS, TABLES
from sql_agent.tasks.sources import Rejected, SourceRecord

_MAPPINGS = Path(__file__).parent / "mappings"
_EXAMPLE = "docs/data.md has an example"
# Columns that are never imported: the row's number, and when it was written.
NOT_READ = frozenset({"id", "created_at", "create_at", "update_at"})


class _Table(BaseModel):
    """A section of a mapping file; each key without a field here is a column."""

    model_config = ConfigDict(extra="allow")
    source: str = Field("", alias="from")
    when: tuple[str, ...] = ()
    labelled: tuple[str, ...] = ()

    def accepts(self, record: SourceRecord) -> bool:
        """Return whether `record` belongs to this table."""
        of_table = not record.table or not self.source or record.table == self.source
        return of_table and (not self.when or any(record.get(field) for field in self.when))

    @property
    def columns(self) -> dict[str, tuple[str, ...]]:
        """The fields of the source that fill each column."""
        given = (self.model_extra or {}).items()
        return {column: (fields,) if isinstance(fields, str) else tuple(fields) for column, fields in given}


@dataclass(frozen=True)
class MedicalRow:
    """The texts of one row of `table`, by column, and the place of its record in the source."""

    place: str
    table: str
    values: Mapping[str, str]

    @property
    def key(self) -> tuple[object, ...]:
        """The row's table and texts; duplicate rows have the same key."""
        return (self.table, *sorted(self.values.items()))


class TableMapping(BaseModel):
    """The content of a mapping file."""

    model_config = ConfigDict(extra="forbid")
    separator: str = "；"
    drugs_info: _Table | None = None
    disease: _Table | None = None

    @classmethod
    def load(cls, path: Path) -> TableMapping:
        """Read a mapping file. Raises ConfigError when it is not valid."""
        try:
            mapping = cls.model_validate(tomllib.loads(path.read_text(encoding="utf-8")))
        except ValidationError as error:
            raise ConfigError(f"{path}: {first_problem(error)}", hint=f"tables: {', '.join(TABLES)}") from error
        except (OSError, ValueError) as error:
            raise ConfigError(f"cannot read the mapping {path}: {error}", hint=_EXAMPLE) from error
        if not mapping.tables:
            raise ConfigError(f"{path} has no section {' or '.join(TABLES)}", hint=_EXAMPLE)
        for name, table in mapping.tables.items():
            known = [column for column in TABLES[name] if column not in NOT_READ]
            if unknown := sorted({*table.columns, *table.labelled} - {*known}):
                hint = f"columns: {', '.join(known)}"
                raise ConfigError(f"{path}: {name} has no column {', '.join(unknown)}", hint=hint)
            if NAME_COLUMNS[name] not in table.columns:
                hint = "name the field of the source that contains the name"
                raise ConfigError(f"{path}: {name} needs {NAME_COLUMNS[name]}", hint=hint)
        return mapping

    @classmethod
    def packaged(cls, name: str) -> TableMapping:
        """Return the built-in mapping `name`: cmekg or openfda."""
        return cls.load(_MAPPINGS / f"{name}.toml")

    @classmethod
    def same_names(cls) -> TableMapping:
        """Return the mapping for a source with our names of tables and columns."""
        return cls.model_validate(
            {
                table: {"from": table, "when": [NAME_COLUMNS[table]]}
                | {name: name for name in columns if name not in NOT_READ}
                for table, columns in TABLES.items()
            }
        )

    @property
    def tables(self) -> dict[str, _Table]:
        """The sections of the file, by table."""
        return {name: section for name in TABLES if (section := getattr(self, name)) is not None}

    @property
    def sources(self) -> list[str]:
        """The tables to read from a source database."""
        return [table.source or name for name, table in self.tables.items()]

    @property
    def fields(self) -> set[str]:
        """The fields of the source that fill some column."""
        return {name for table in self.tables.values() for names in table.columns.values() for name in names}

    def row(self, record: SourceRecord) -> MedicalRow | Rejected:
        """Return the row for `record`, or why there is none."""
        name = next((name for name, table in self.tables.items() if table.accepts(record)), None)
        if name is None:
            needed = [field for table in self.tables.values() for field in table.when]
            reason = f"it is not a row of {' or '.join(self.tables)}: it has none of the fields of `when`"
            return Rejected(record.place, reason, ", ".join(needed))
        table, values = self.tables[name], dict[str, str]()
        for column, fields in table.columns.items():
            try:
                parts = [(field, text) for field in fields for text in texts_of(record.get(field))]
            except TypeError as error:
                return Rejected(record.place, f"{column} is not a text", str(error))
            if not parts:
                continue
            if column == NAME_COLUMNS[name]:
                values[column] = parts[0][1]
            else:
                shown = [f"{field}：{text}" if column in table.labelled else text for field, text in parts]
                values[column] = self.separator.join(dict.fromkeys(shown))
        problem = _problem(name, values, table)
        return Rejected(record.place, problem) if problem else MedicalRow(record.place, name, values)


def _problem(name: str, values: Mapping[str, str], table: _Table) -> str | None:
    """Return why `values` cannot be a row of the table `name`."""
    column = NAME_COLUMNS[name]
    if column not in values:
        return f"no {column}: {', '.join(table.columns[column])} is empty"
    for column, text in values.items():
        if unreadable(text):
            return f"{column} contains bytes that are not UTF-8 text"
    return "it has a name and nothing else" if len(values) == 1 else None
