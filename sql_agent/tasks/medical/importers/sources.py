"""Read records from CMeKG, openFDA, CSV, JSON Lines, SQLite and MySQL.

CSV is read with the csv module, because pandas fills a line that has too few cells instead of reporting it.
"""

from __future__ import annotations

import csv
import io
import json
import pickle
import sqlite3
import tarfile
import zipfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pymysql
from pymysql.cursors import SSCursor

from sql_agent.database import Source
from sql_agent.database.failures import message_of
from sql_agent.database.mysql.address import ServerAddress
from sql_agent.database.mysql.connection import connect_to
from sql_agent.database.schema import quoted
from sql_agent.errors import DataError

_CMEKG = "cmekg.pkl"
_MAX_CELL_CHARS = 50_000_000  # of a CSV file; the module's own limit is 131,072
_FORMATS = "a .pkl or .tar.gz of PyCMeKG, openFDA's .json or .json.zip, .csv, .tsv, .jsonl, .db, .sqlite or a MySQL URL"
_READ_ERRORS = (
    *(OSError, EOFError, ValueError, LookupError, RecursionError, pickle.UnpicklingError),
    *(tarfile.TarError, zipfile.BadZipFile, csv.Error, sqlite3.Error, pymysql.Error),
)


@dataclass(frozen=True)
class SourceRecord:
    """One record: its place in the source, its fields, and its table if the source is a database."""

    place: str
    fields: Mapping[str, Any]
    table: str = ""

    def get(self, name: str) -> Any:
        """Return the field `name`, else the value at this dotted path, else None."""
        if name in self.fields:
            return self.fields[name]
        value: Any = self.fields
        for part in name.split("."):
            value = value.get(part) if isinstance(value, Mapping) else None
        return value


@dataclass(frozen=True)
class Rejected:
    """A record that is not imported: its place, a reason to group by, and details such as the error message."""

    place: str
    reason: str
    detail: str = ""


Records = Iterator[SourceRecord | Rejected]


def packaged_mapping(source: Source) -> str | None:
    """Return the name of the built-in mapping for this kind of source: "cmekg", "openfda" or None."""
    name = source.name.lower() if isinstance(source, Path) else ""
    if name.endswith((".pkl", ".tar.gz")):
        return "cmekg"
    return "openfda" if name.endswith((".json", ".json.zip")) else None


def read_records(source: Source, tables: Sequence[str]) -> Records:
    """Yield the records of `source`, or of the `tables` of a database. Raises DataError when it cannot be read."""
    try:
        yield from _mysql(source, tables) if isinstance(source, ServerAddress) else _file(source, tables)
    except DataError:
        raise
    except _READ_ERRORS as error:
        raise DataError(f"cannot read {source}: {message_of(error)}", hint=f"SOURCE must be {_FORMATS}") from error


def _file(path: Path, tables: Sequence[str]) -> Records:
    readers: Mapping[str, Callable[[Path], Records]] = {
        ".pkl": _cmekg,
        ".tar.gz": _cmekg,
        ".json": _openfda,
        ".json.zip": _openfda,
        ".csv": _csv,
        ".tsv": _csv,
        ".jsonl": _jsonl,
        **dict.fromkeys((".db", ".sqlite", ".sqlite3"), lambda path: _sqlite(path, tables)),
    }
    for ending, read in readers.items():
        if path.name.lower().endswith(ending):
            return read(path)
    raise DataError(f"cannot import {path}: unknown file format", hint=f"SOURCE must be {_FORMATS}")


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
        yield _json_record(f"result {number}", label)


def _jsonl(path: Path) -> Records:
    with path.open("rb") as lines:
        for number, line in enumerate(lines, start=1):
            if not line.strip():
                continue
            try:
                yield _json_record(f"line {number}", json.loads(line))
            except (ValueError, RecursionError) as error:
                yield Rejected(f"line {number}", "it is not JSON", str(error))


def _json_record(place: str, fields: Any) -> SourceRecord | Rejected:
    return SourceRecord(place, fields) if isinstance(fields, dict) else Rejected(place, "it is not a JSON object")


def _csv(path: Path) -> Records:
    """Yield the lines of a table whose cells are separated by the most frequent of , ; tab and | in its first line."""
    csv.field_size_limit(_MAX_CELL_CHARS)
    with path.open(encoding="utf-8-sig", errors="surrogateescape", newline="") as lines:
        delimiter = max(",;\t|", key=lines.readline().count)
        lines.seek(0)
        reader = csv.DictReader(lines, delimiter=delimiter)
        if not reader.fieldnames:
            raise DataError(f"{path} is empty", hint="its first line must name the columns")
        for fields in reader:
            place = f"line {reader.line_num}"
            if None in fields or None in fields.values():  # the reader's marks of too many and of too few cells
                yield Rejected(place, f"it does not have {len(reader.fieldnames)} cells as the first line does")
            else:
                yield SourceRecord(place, fields)


def _sqlite(path: Path, tables: Sequence[str]) -> Records:
    with closing(sqlite3.connect(f"{path.resolve().as_uri()}?mode=ro", uri=True)) as connection:
        connection.text_factory = bytes  # so that a cell that is not UTF-8 rejects its row, not the whole file
        names = connection.execute("SELECT name FROM sqlite_master WHERE type IN ('table', 'view')").fetchall()
        yield from _rows(connection.cursor(), tables, {name.decode() for (name,) in names})


def _mysql(address: ServerAddress, tables: Sequence[str]) -> Records:
    with closing(connect_to(address)) as connection, connection.cursor(SSCursor) as cursor:
        cursor.execute("SHOW TABLES")
        yield from _rows(cursor, tables, {name for (name,) in cursor.fetchall()})


def _rows(cursor: Any, tables: Sequence[str], present: set[str]) -> Records:
    """Yield the rows of those `tables` that are `present`."""
    if not present.intersection(tables):
        hint = (
            f"it has {', '.join(sorted(present)) or 'no table'}; name tables and columns in a mapping: --mapping FILE"
        )
        raise DataError(f"the source has no table {' or '.join(tables)}", hint=hint)
    for table in tables:
        if table in present:
            cursor.execute(f"SELECT * FROM {quoted(table)}")
            names = [name for name, *_ in cursor.description]
            for number, row in enumerate(cursor, start=1):
                yield SourceRecord(f"{table}, row {number}", dict(zip(names, row, strict=True)), table)
