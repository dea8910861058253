"""Turn the records of a source into rows of the two tables, by a mapping file: docs/data.md has an example.

Two published data sets have a built-in mapping and a reader: CMeKG and openFDA's drug labels.
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
from typing import Annotated, Any, Literal

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, ValidationError, create_model

from sql_agent.database import Source
from sql_agent.errors import ConfigError, DataError
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


class _Table(BaseModel):
    """A section of a mapping file; a subclass for each table has its columns as fields."""

    model_config = ConfigDict(extra="forbid")
    source: str = Field("", alias="from")
    when: tuple[str, ...] = ()
    labelled: tuple[str, ...] = ()

    def accepts(self, record: SourceRecord) -> bool:
        of_table = not record.table or not self.source or record.table == self.source
        return of_table and (not self.when or any(record.get(field) for field in self.when))

    @property
    def columns(self) -> dict[str, tuple[str, ...]]:
        """The fields of the source that fill each column."""
        names = type(self).model_fields.keys() - _Table.model_fields.keys()
        return {name: fields for name in type(self).model_fields if name in names and (fields := getattr(self, name))}


def _sections() -> dict[str, Any]:
    """Return a pydantic field for each table: a section of a mapping file that must fill the column of names."""
    sections = {}
    for table, columns in READ.items():
        fields: dict[str, Any] = dict.fromkeys(columns, (_Fields, ()))
        fields[NAME_COLUMNS[table]] = (_Fields, ...)
        sections[table] = (create_model(table, __base__=_Table, **fields) | None, None)
    return sections


_File = create_model("_File", __config__=ConfigDict(extra="forbid"), separator=(str, "；"), **_sections())


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


@dataclass(frozen=True)
class TableMapping:
    """The content of a mapping file: its sections by table, and what separates the texts of one cell."""

    separator: str
    tables: Mapping[str, _Table]

    @classmethod
    def load(cls, path: Path) -> TableMapping:
        """Read a mapping file. Raises ConfigError when it is not valid."""
        try:
            mapping = cls._of(read_toml(path, _EXAMPLE))
        except ValidationError as error:
            known = "; ".join(f"{name}: {', '.join(columns)}" for name, columns in READ.items())
            raise ConfigError(f"{path}: {first_problem(error)}", hint=f"tables and columns: {known}") from error
        if not mapping.tables:
            raise ConfigError(f"{path} has no section {' or '.join(TABLES)}", hint=_EXAMPLE)
        return mapping

    @classmethod
    def _of(cls, values: Mapping[str, Any]) -> TableMapping:
        file = _File.model_validate(values)
        tables = {name: section for name in TABLES if (section := getattr(file, name)) is not None}
        return cls(file.separator, tables)  # type: ignore[attr-defined]

    @classmethod
    def packaged(cls, name: str) -> TableMapping:
        """Return the built-in mapping `name`: cmekg or openfda."""
        return cls.load(_MAPPINGS / f"{name}.toml")

    @classmethod
    def same_names(cls) -> TableMapping:
        """Return the mapping for a source whose tables and columns have the names of the medical tables and columns."""
        same = {table: dict(zip(columns, columns, strict=True)) for table, columns in READ.items()}
        return cls._of({table: {"from": table, "when": [NAME_COLUMNS[table]], **same[table]} for table in TABLES})

    @property
    def sources(self) -> list[str]:
        return [table.source or name for name, table in self.tables.items()]

    @property
    def fields(self) -> set[str]:
        """The fields of the source that fill some column."""
        return {name for table in self.tables.values() for names in table.columns.values() for name in names}

    def row(self, record: SourceRecord) -> MedicalRow | Rejected:
        """Return the row for `record`, or the rejected record with the reason."""
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
            if parts and column == NAME_COLUMNS[name]:
                values[column] = parts[0][1]
            elif parts:
                shown = [f"{field}：{text}" if column in table.labelled else text for field, text in parts]
                values[column] = self.separator.join(dict.fromkeys(shown))
        needed_fields = ", ".join(table.columns[NAME_COLUMNS[name]])
        bad = next((column for column, text in values.items() if unreadable(text)), None)
        if NAME_COLUMNS[name] not in values:
            return Rejected(record.place, f"no {NAME_COLUMNS[name]}: {needed_fields} is empty")
        if bad is not None:
            return Rejected(record.place, f"{bad} contains bytes that are not UTF-8 text")
        if len(values) == 1:
            return Rejected(record.place, "it has a name and nothing else")
        return MedicalRow(record.place, name, values)


def published(source: Source) -> Published | None:
    """Return the name of the published data set that `source` is by its file name, or None."""
    name = source.name.lower() if isinstance(source, Path) else ""
    if name.endswith((".pkl", ".tar.gz")):
        return "cmekg"
    return "openfda" if name.endswith((".json", ".json.zip")) else None


def medical_records(source: Source, tables: list[str], say: Callable[[str], None]) -> Records:
    """Yield the records of a published data set or of any other source, as `read_records` does."""
    name = published(source)
    if name is None or not isinstance(source, Path):
        yield from read_records(source, tables, say, _FORMATS)
        return
    with reading(source, _FORMATS):
        yield from _cmekg(source) if name == "cmekg" else _openfda(source)


class _DataUnpickler(pickle.Unpickler):
    """Loads numbers, texts, lists and dicts; refuses a pickle that names a function or class."""

    def find_class(self, module_name: str, global_name: str) -> Any:
        raise DataError(
            f"the pickle names {module_name}.{global_name}; plain data names no code, so nothing was run",
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
