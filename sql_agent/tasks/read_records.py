"""Read records from CSV, JSON Lines, Excel, Parquet, SQLite and MySQL.

CSV is read with the csv module, because pandas fills a line that has too few cells instead of reporting it.
"""

from __future__ import annotations

import csv
import json
import pickle
import sqlite3
import tarfile
import warnings
import zipfile
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager, suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import pandas as pd
import pymysql
from pyarrow.parquet import ParquetFile
from pymysql.cursors import SSCursor

from sql_agent.database import Source
from sql_agent.database.failures import message_of
from sql_agent.database.mysql.address import ServerAddress
from sql_agent.database.mysql.connection import connect_to
from sql_agent.database.schema import quoted
from sql_agent.errors import DataError

_MAX_CELL_CHARS = 50_000_000  # limit; the csv module's default is 131,072
_ENCODINGS = ("utf-8-sig", "gb18030")
FORMATS = ".csv, .tsv, .jsonl, .xlsx, .parquet, .db, .sqlite or a MySQL URL"
_READ_ERRORS = (
    *(OSError, EOFError, ValueError, LookupError, RecursionError, pickle.UnpicklingError),
    *(tarfile.TarError, zipfile.BadZipFile, csv.Error, sqlite3.Error, pymysql.Error),
)


@dataclass(frozen=True)
class SourceRecord:
    """One record: its place in the source, its fields, and its table if the source has several."""

    place: str
    fields: Mapping[str, Any]
    table: str = ""


@dataclass(frozen=True)
class Rejected:
    """A record that is not imported: its place in the source, a reason, and details such as an error."""

    place: str
    reason: str
    detail: str = ""


Records = Iterator[SourceRecord | Rejected]


def by_reason(rejected: Iterable[Rejected]) -> dict[str, list[str]]:
    """Return the places of rejected records by reason, the most common reason first."""
    places: dict[str, list[str]] = {}
    for record in rejected:
        places.setdefault(record.reason, []).append(record.place)
    return dict(sorted(places.items(), key=lambda item: -len(item[1])))


def write_rejected(rejected: Iterable[Rejected], path: Path) -> None:
    lines = (json.dumps(asdict(record), ensure_ascii=False) + "\n" for record in rejected)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(lines), encoding="utf-8", errors="backslashreplace")


@contextmanager
def reading(source: Source, formats: str) -> Iterator[None]:
    """Raise DataError instead of the errors of the libraries that read `source`."""
    try:
        yield
    except DataError:
        raise
    except _READ_ERRORS as error:
        raise DataError(f"cannot read {source}: {message_of(error)}", hint=f"SOURCE must be {formats}") from error


def read_records(source: Source, tables: Sequence[str], say: Callable[[str], None], formats: str = FORMATS) -> Records:
    """Yield the records of `source`. Of a database or a workbook only `tables` are read; an empty list means all.

    `say` receives the guessed encoding and separator of a CSV file. Raises DataError when `source` cannot be read.
    """
    with reading(source, formats):
        if isinstance(source, ServerAddress):
            yield from _mysql(source, tables)
            return
        readers: Mapping[str, Callable[[], Records]] = {
            **dict.fromkeys((".csv", ".tsv"), lambda: _csv(source, say)),
            ".jsonl": lambda: _jsonl(source),
            ".xlsx": lambda: _workbook(source, tables),
            ".parquet": lambda: _parquet(source),
            **dict.fromkeys((".db", ".sqlite", ".sqlite3"), lambda: _sqlite(source, tables)),
        }
        reader = readers.get(source.suffix.lower())
        if reader is None:
            raise DataError(f"cannot import {source}: unknown file format", hint=f"SOURCE must be {formats}")
        yield from reader()


def json_record(place: str, fields: Any) -> SourceRecord | Rejected:
    """Return a JSON object as a record, and any other JSON value as a rejected record."""
    return SourceRecord(place, fields) if isinstance(fields, dict) else Rejected(place, "it is not a JSON object")


def _jsonl(path: Path) -> Records:
    with path.open("rb") as lines:
        for number, line in enumerate(lines, start=1):
            if not line.strip():
                continue
            try:
                yield json_record(f"line {number}", json.loads(line))
            except (ValueError, RecursionError) as error:
                yield Rejected(f"line {number}", "it is not JSON", str(error))


def _csv(path: Path, say: Callable[[str], None]) -> Records:
    """Yield the lines of a CSV file. The separator is the most frequent of , ; tab and | in its first line.

    csv.Sniffer is not used: in a table with one column it takes a letter for the separator.
    """
    csv.field_size_limit(_MAX_CELL_CHARS)
    encoding = _encoding(path)
    with path.open(encoding=encoding, errors="surrogateescape", newline="") as lines:
        delimiter = max(",;\t|", key=lines.readline().count)
        lines.seek(0)
        reader = csv.DictReader(lines, delimiter=delimiter)
        names = [name.strip() for name in reader.fieldnames or ()]
        if not names:
            raise DataError(f"{path} is empty", hint="its first line must name the columns")
        if twice := sorted({name for name in names if names.count(name) > 1}):
            raise DataError(f"{path} has several columns {', '.join(map(repr, twice))}", hint="give each its own name")
        reader.fieldnames = names
        say(f"{path}: {encoding.removesuffix('-sig')}, separated by {'tab' if delimiter == chr(9) else delimiter}")
        for fields in reader:
            place = f"line {reader.line_num}"
            if None in fields or None in fields.values():  # the reader's marks of too many and of too few cells
                yield Rejected(place, f"it does not have {len(names)} cells like the first line")
            else:
                yield SourceRecord(place, fields)


def _encoding(path: Path) -> str:
    """Return the first encoding that can read the whole file, else UTF-8, so that only its bad lines are rejected."""
    for encoding in _ENCODINGS:
        with suppress(UnicodeDecodeError), path.open(encoding=encoding) as lines:
            for _ in lines:
                pass
            return encoding
    return _ENCODINGS[0]


def _workbook(path: Path, tables: Sequence[str]) -> Records:
    """Yield the rows of a workbook. The sheets are tables, unless only one has rows."""
    with warnings.catch_warnings():  # openpyxl warns about parts of a workbook that contain no cells
        warnings.simplefilter("ignore", UserWarning)
        sheets = pd.read_excel(path, sheet_name=None, dtype=object, na_filter=False)
    filled = {str(name): sheet for name, sheet in sheets.items() if not sheet.empty}
    if not filled:
        raise DataError(f"{path} is empty", hint="the first row of a sheet must name the columns")
    for name in _chosen(tables, filled) if len(filled) > 1 else filled:
        sheet = filled[name]
        sheet.columns = [str(column).strip() for column in sheet.columns]
        of_several, table = (f"{name}, ", name) if len(filled) > 1 else ("", "")
        for number, fields in enumerate(sheet.to_dict("records"), start=2):
            if any(cell != "" for cell in fields.values()):
                yield SourceRecord(f"{of_several}row {number}", {str(key): cell for key, cell in fields.items()}, table)


def _parquet(path: Path) -> Records:
    with ParquetFile(path) as file:
        rows = (row for batch in file.iter_batches() for row in batch.to_pylist())
        for number, fields in enumerate(rows, start=1):
            yield SourceRecord(f"row {number}", fields)


def _sqlite(path: Path, tables: Sequence[str]) -> Records:
    with closing(sqlite3.connect(f"{path.resolve().as_uri()}?mode=ro", uri=True)) as connection:
        connection.text_factory = bytes  # so that a cell that is not UTF-8 rejects its row, not the whole file
        names = connection.execute("SELECT name FROM sqlite_master WHERE type IN ('table', 'view')").fetchall()
        yield from _rows(connection.cursor(), tables, [name.decode() for (name,) in names])


def _mysql(address: ServerAddress, tables: Sequence[str]) -> Records:
    with closing(connect_to(address)) as connection, connection.cursor(SSCursor) as cursor:
        cursor.execute("SHOW TABLES")
        yield from _rows(cursor, tables, [name for (name,) in cursor.fetchall()])


def _rows(cursor: Any, tables: Sequence[str], present: Collection[str]) -> Records:
    for table in _chosen(tables, present):
        cursor.execute(f"SELECT * FROM {quoted(table)}")
        names = [name for name, *_ in cursor.description]
        for number, row in enumerate(cursor, start=1):
            yield SourceRecord(f"{table}, row {number}", dict(zip(names, row, strict=True)), table)


def _chosen(tables: Sequence[str], present: Collection[str]) -> list[str]:
    """Return those of `tables` that are present, or all that are present if `tables` is empty."""
    chosen = [table for table in tables or present if table in present]
    if not chosen:
        known = ", ".join(sorted(present)) or "no table"
        hint = f"it has {known}; name tables and columns in a mapping: --mapping FILE"
        raise DataError(f"the source has no table {' or '.join(tables)}", hint=hint)
    return chosen
