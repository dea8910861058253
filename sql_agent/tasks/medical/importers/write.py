"""Write imported rows into the two tables of a database, in one transaction, and report what was imported."""

from __future__ import annotations

import sqlite3
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pymysql

from sql_agent.database import Source
from sql_agent.database.failures import message_of
from sql_agent.database.mysql.address import ServerAddress
from sql_agent.database.mysql.connection import connect_to
from sql_agent.database.schema import fold, quoted
from sql_agent.errors import DataError
from sql_agent.tasks.medical.importers.mapping import NOT_READ, MedicalRow, TableMapping
from sql_agent.tasks.medical.server_copy import server_table_sql
from sql_agent.tasks.medical.tables import NAME_COLUMNS, TABLES, create_table_sql
from sql_agent.tasks.read_records import Records, Rejected, by_reason, write_rejected


@dataclass
class ImportReport:
    """The result of an import.

    rows      number of added rows by table
    filled    number of added cells by table and column
    rejected  records that were not imported
    fields    fields of the source, in order
    repeated  names that several rows of a table share
    """

    rows: Counter[str] = field(default_factory=Counter)
    filled: Counter[tuple[str, str]] = field(default_factory=Counter)
    rejected: list[Rejected] = field(default_factory=list)
    fields: dict[str, None] = field(default_factory=dict)
    repeated: dict[str, list[str]] = field(default_factory=dict)


def import_records(records: Records, mapping: TableMapping, database: Source, rejected: Path) -> ImportReport:
    """Add the rows of `records` to `database`: all rows or, on an error, none. Missing tables are created.

    A row that the database already contains is rejected, so that a source can be imported again. Rejected records are
    written to the JSON Lines file `rejected`. Raises DataError when no row can be imported or a file cannot be written.
    """
    report = ImportReport()
    rows = list(_rows(records, mapping, report))
    if not rows:
        reason = next(iter(by_reason(report.rejected)), "the source is empty")
        known = f"; the source has the fields {', '.join(report.fields)}" if report.fields else ""
        raise DataError(
            f"no row could be imported: {reason}{known}",
            hint="without --db and --mapping, the command proposes a mapping of fields to columns",
        )
    try:
        with _transaction(database, rows) as (cursor, mark):
            for table in TABLES:
                _insert(table, [row for row in rows if row.table == table], cursor, mark, report)
            write_rejected(report.rejected, rejected)
    except (OSError, sqlite3.Error, pymysql.Error) as error:
        hint = "check --db, --rejected and the permission to write there"
        raise DataError(f"cannot write {database} or {rejected}: {message_of(error)}", hint=hint) from error
    return report


def _rows(records: Records, mapping: TableMapping, report: ImportReport) -> Iterator[MedicalRow]:
    """Yield the distinct rows of `records`; report rejected records and the fields of the source."""
    places: dict[tuple[object, ...], str] = {}
    for record in records:
        if not isinstance(record, Rejected):
            report.fields.update(dict.fromkeys(map(str, record.fields)))
        row = record if isinstance(record, Rejected) else mapping.row(record)
        if isinstance(row, Rejected):
            report.rejected.append(row)
        elif row.key in places:
            report.rejected.append(Rejected(row.place, "the same row again", places[row.key]))
        else:
            places[row.key] = row.place
            yield row


@contextmanager
def _transaction(database: Source, rows: Sequence[MedicalRow]) -> Iterator[tuple[Any, str]]:
    """Create missing tables, yield a cursor and its placeholder "?" or "%s", and commit at the end."""
    if isinstance(database, ServerAddress):
        with closing(connect_to(database)) as server, server.cursor() as cursor:
            cursor.execute("SET SESSION sql_mode='STRICT_ALL_TABLES'")  # other modes cut long texts with only a warning
            cursor.execute("SHOW TABLES")
            _make_tables(cursor, rows, lambda table: server_table_sql(table, TABLES[table]))
            server.begin()
            yield cursor, "%s"
            server.commit()
        return
    database.parent.mkdir(parents=True, exist_ok=True)
    with closing(sqlite3.connect(database, isolation_level=None)) as connection:
        file = connection.execute("BEGIN IMMEDIATE")
        file.execute("SELECT lower(name) FROM sqlite_master WHERE type = 'table'")
        _make_tables(file, rows, create_table_sql)
        yield file, "?"
        file.execute("COMMIT")


def _make_tables(cursor: Any, rows: Sequence[MedicalRow], statement: Callable[[str], str]) -> None:
    """Create each of the two tables that is missing. `cursor` has just run a query that lists the existing tables.

    Raises DataError when an existing table lacks a column of `rows`. This check comes before any CREATE TABLE, which a
    server cannot undo.
    """
    present = {name for (name,) in cursor.fetchall()}
    for table in TABLES.keys() & present:
        cursor.execute(f"SELECT * FROM {table} LIMIT 0")
        needed = {column for row in rows if row.table == table for column in row.values}
        if missing := sorted(needed - {fold(name) for name, *_ in cursor.description}):
            raise DataError(
                f"the table {table} has no column {', '.join(missing)}", hint="add it, or drop it from the mapping"
            )
    for table in TABLES.keys() - present:
        cursor.execute(statement(table))


def _insert(table: str, rows: Sequence[MedicalRow], cursor: Any, mark: str, report: ImportReport) -> None:
    """Insert the rows that a table lacks, with ids above its largest id. Report rejected rows and repeated names."""
    cursor.execute(f"SELECT * FROM {table}")
    names = [fold(name) for name, *_ in cursor.description]
    stored = [dict(zip(names, row, strict=True)) for row in cursor.fetchall()]
    present = {
        MedicalRow("", table, {name: cell for name, cell in row.items() if cell and name not in NOT_READ}).key
        for row in stored
    }
    called = Counter(str(row[NAME_COLUMNS[table]]) for row in stored)
    last_id = max((row["id"] for row in stored if row["id"] is not None), default=0)
    for row in rows:
        if row.key in present:
            report.rejected.append(Rejected(row.place, "the database has this row already"))
            continue
        values = {"id": last_id + 1, **row.values}
        columns, marks = ", ".join(map(quoted, values)), ", ".join([mark] * len(values))
        try:
            cursor.execute(f"INSERT INTO {table} ({columns}) VALUES ({marks})", tuple(values.values()))
        except pymysql.err.DataError as error:  # a text is too long, or has characters that the column lacks
            report.rejected.append(Rejected(row.place, "the table cannot store it", message_of(error)))
            continue
        last_id += 1
        called[row.values[NAME_COLUMNS[table]]] += 1
        report.rows[table] += 1
        report.filled.update((table, column) for column in row.values)
    report.repeated[table] = sorted(name for name, count in called.items() if count > 1)
