"""Turn the records of a source into rows of the two tables, as a mapping file says (docs/data.md has an example).

There is a reader and a built-in mapping for two published data sets: CMeKG and openFDA's drug labels.
"""

from __future__ import annotations

import io
import json
import pickle
import tarfile
import zipfile
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal, Self

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, ValidationError, model_validator

from sql_agent.database import Source
from sql_agent.errors import ConfigError, DataError
from sql_agent.questions.question_columns import value_at
from sql_agent.system.files import read_toml
from sql_agent.system.messages import first_problem
from sql_agent.tasks.cells import texts_of, unreadable
from sql_agent.tasks.medical.tables import NAME_COLUMNS, TABLES
from sql_agent.tasks.read_records import FORMATS, Records, Rejected, SourceRecord, json_record, read_records, reading

Published = Literal["cmekg", "openfda"]
_CMEKG = "cmekg.pkl"
_FORMATS = f"a .pkl or .tar.gz of PyCMeKG, openFDA's .json or .json.zip, {FORMATS}"
_MAPPINGS = Path(__file__).parent / "mappings"
_EXAMPLE = "docs/data.md has an example"
# Columns that are never imported: the row's number and timestamps.
NOT_READ = frozenset({"id", "created_at", "create_at", "update_at"})
READ = {table: [column for column in columns if column not in NOT_READ] for table, columns in TABLES.items()}

_Fields = Annotated[tuple[str, ...], BeforeValidator(lambda value: (value,) if isinstance(value, str) else value)]


class _Section(BaseModel):
    """A section of a mapping file, for one table. Each further key is a column, with the fields that fill the column.

    from      table of the source (default: any)
    when      the section is for records with one of these fields (default: all records)
    labelled  columns in which each text is preceded by the name of its field
    """

    model_config = ConfigDict(extra="allow")
    __pydantic_extra__: dict[str, _Fields] = Field(init=False)
    source: str = Field("", alias="from")
    when: tuple[str, ...] = ()
    labelled: tuple[str, ...] = ()

    def accepts(self, record: SourceRecord) -> bool:
        of_table = not record.table or not self.source or record.table == self.source
        return of_table and (not self.when or any(value_at(record.fields, field) for field in self.when))

    @property
    def columns(self) -> dict[str, tuple[str, ...]]:
        """The fields of the source that fill each column."""
        return {column: fields for column, fields in self.__pydantic_extra__.items() if fields}


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
    """The content of a mapping file: a section for each table, and what separates the texts of one cell."""

    model_config = ConfigDict(extra="forbid")
    separator: str = "；"
    drugs_info: _Section | None = None
    disease: _Section | None = None

    @model_validator(mode="after")
    def _columns_exist(self) -> Self:
        for table, section in self.tables.items():
            if unknown := sorted(section.columns.keys() - set(READ[table])):
                raise ValueError(f"{table} has no column {unknown[0]}")
            if NAME_COLUMNS[table] not in section.columns:
                raise ValueError(f"{table} needs {NAME_COLUMNS[table]}")
        return self

    @property
    def tables(self) -> dict[str, _Section]:
        return {table: section for table in TABLES if (section := getattr(self, table)) is not None}

    @classmethod
    def load(cls, path: Path) -> Self:
        """Read a mapping file. Raises ConfigError when it is not valid."""
        try:
            mapping = cls.model_validate(read_toml(path, _EXAMPLE))
        except ValidationError as error:
            known = "; ".join(f"{name}: {', '.join(columns)}" for name, columns in READ.items())
            raise ConfigError(f"{path}: {first_problem(error)}", hint=f"tables and columns: {known}") from error
        if not mapping.tables:
            raise ConfigError(f"{path} has no section {' or '.join(TABLES)}", hint=_EXAMPLE)
        return mapping

    @classmethod
    def packaged(cls, name: str) -> Self:
        """Return the built-in mapping `name`: cmekg or openfda."""
        return cls.load(_MAPPINGS / f"{name}.toml")

    @classmethod
    def same_names(cls) -> Self:
        """Return the mapping for a source whose tables and columns have the names of the medical tables and columns."""
        sections = {
            table: {"from": table, "when": [NAME_COLUMNS[table]], **{column: column for column in columns}}
            for table, columns in READ.items()
        }
        return cls.model_validate(sections)

    @property
    def sources(self) -> list[str]:
        return [table.source or name for name, table in self.tables.items()]

    @property
    def fields(self) -> set[str]:
        """The fields of the source that fill some column."""
        return {name for table in self.tables.values() for names in table.columns.values() for name in names}

    def row(self, record: SourceRecord) -> MedicalRow | Rejected:
        table, section = next(((n, s) for n, s in self.tables.items() if s.accepts(record)), ("", None))
        if section is None:
            needed = [field for section in self.tables.values() for field in section.when]
            reason = f"it is not a row of {' or '.join(self.tables)}: it has none of the fields of `when`"
            return Rejected(record.place, reason, ", ".join(needed))
        name, values = NAME_COLUMNS[table], dict[str, str]()
        for column, fields in section.columns.items():
            try:
                parts = [(field, text) for field in fields for text in texts_of(value_at(record.fields, field))]
            except TypeError as error:
                return Rejected(record.place, f"{column} is not a text", str(error))
            if parts and column == name:
                values[column] = parts[0][1]
            elif parts:
                texts = [f"{field}：{text}" if column in section.labelled else text for field, text in parts]
                values[column] = self.separator.join(dict.fromkeys(texts))
        if name not in values:
            return Rejected(record.place, f"no {name}: {', '.join(section.columns[name])} is empty")
        if bad := [column for column, text in values.items() if unreadable(text)]:
            return Rejected(record.place, f"{bad[0]} contains bytes that are not UTF-8 text")
        if len(values) == 1:
            return Rejected(record.place, "it has a name and nothing else")
        return MedicalRow(record.place, table, values)


def published(source: Source) -> Published | None:
    """Return which published data set `source` is, by its file name, or None."""
    name = source.name.lower() if isinstance(source, Path) else ""
    if name.endswith((".pkl", ".tar.gz")):
        return "cmekg"
    return "openfda" if name.endswith((".json", ".json.zip")) else None


def medical_records(source: Source, tables: list[str], say: Callable[[str], None]) -> Records:
    """Yield the records of a published data set or of any other source, as `read_records` does."""
    name = published(source)
    if name is None or not isinstance(source, Path):
        yield from read_records(source, tables, say, _FORMATS)
    else:
        with reading(source, _FORMATS):
            yield from _cmekg(source) if name == "cmekg" else _openfda(source)


class _DataUnpickler(pickle.Unpickler):
    """Loads numbers, texts, lists and dicts; refuses a pickle that names a function or class."""

    def find_class(self, module_name: str, global_name: str) -> Any:
        raise DataError(
            f"the pickle names {module_name}.{global_name}, but plain data names no code; nothing was run",
            hint="take the file from the package PyCMeKG itself",
        )


def _cmekg(path: Path) -> Records:
    """Yield the subjects of PyCMeKG's graph, from its pickle or from the package's source archive."""
    content = path.read_bytes() if path.suffix == ".pkl" else _graph_in_archive(path)
    graph = _DataUnpickler(io.BytesIO(content)).load()
    if not isinstance(graph, dict):
        raise DataError(f"{path} contains a {type(graph).__name__}, not a dict", hint="take the file from PyCMeKG")
    for subject, predicates in graph.items():
        if isinstance(predicates, dict):
            yield SourceRecord(str(subject), {"name": subject, **predicates})
        else:
            yield Rejected(str(subject), "its value is not a dict of predicates")


def _graph_in_archive(path: Path) -> bytes:
    with tarfile.open(path) as archive:
        member = next((m for m in archive.getmembers() if m.name.endswith(f"/{_CMEKG}")), None)
        content = archive.extractfile(member) if member else None
        if content is None:
            raise DataError(f"{path} contains no {_CMEKG}", hint="take the source archive of PyCMeKG")
        return content.read()


def _openfda(path: Path) -> Records:
    """Yield the labels in one of openFDA's JSON files."""
    if path.suffix == ".zip":
        with zipfile.ZipFile(path) as archive:
            content = json.loads(archive.read(archive.namelist()[0]))
    else:
        content = json.loads(path.read_bytes())
    labels = content.get("results") if isinstance(content, dict) else None
    if not isinstance(labels, list):
        raise DataError(f'{path} has no list "results"', hint="give a file of openFDA's drug labels, or JSONL")
    for number, label in enumerate(labels, start=1):
        yield json_record(f"result {number}", label)
