"""Write the sample facts into a SQLite file; the same facts give the same bytes."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable
from pathlib import Path

from sql_agent.errors import DataError
from sql_agent.schemas import Lang
from sql_agent.system.files import atomic_write
from sql_agent.tasks.medical.sample_facts import FactRecord
from sql_agent.tasks.medical.schema import TABLES, create_table_sql


def build_database(records: Iterable[FactRecord], lang: Lang, path: Path) -> dict[str, int]:
    """Write the texts of `records` in `lang` to the SQLite file `path`, which is replaced when all are written.

    Ids count from 1 in the order of `records`. Returns the number of rows by table. Raises DataError when the file
    cannot be written.
    """
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with atomic_write(path) as unfinished:
            counts = _write(records, lang, unfinished)
    except (OSError, sqlite3.Error) as error:
        raise DataError(f"cannot write {path}: {error}", hint="choose another file with --out") from error
    return counts


def _write(records: Iterable[FactRecord], lang: Lang, path: Path) -> dict[str, int]:
    path.unlink(missing_ok=True)
    counts = dict.fromkeys(TABLES, 0)
    connection = sqlite3.connect(path, isolation_level=None)
    try:
        connection.execute("PRAGMA journal_mode=OFF")
        connection.execute("BEGIN")
        for table in TABLES:
            connection.execute(create_table_sql(table))
        for record in records:
            counts[record.table] += 1
            values = {"id": counts[record.table], **record.values[lang]}
            marks = ", ".join("?" * len(values))
            statement = f"INSERT INTO {record.table} ({', '.join(values)}) VALUES ({marks})"
            connection.execute(statement, tuple(values.values()))
        connection.execute("COMMIT")
        connection.execute("VACUUM")
    finally:
        connection.close()
    return counts
