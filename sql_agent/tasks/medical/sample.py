"""Load the sample facts (TOML, one record per drug or disease), and write them to a SQLite file."""

from __future__ import annotations

import sqlite3
import tomllib
from collections.abc import Iterable, Mapping
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import get_args

from sql_agent.errors import DataError
from sql_agent.schemas import Lang
from sql_agent.system.files import atomic_write
from sql_agent.tasks.medical.tables import TABLES, create_table_sql

FACTS_DIR = Path(__file__).parent / "facts"
TABLE_OF_KIND = {"drug": "drugs_info", "disease": "disease"}


@dataclass(frozen=True)
class FactRecord:
    """One drug or disease; `values` maps a language to the columns and their texts."""

    table: str
    key: str
    values: Mapping[Lang, Mapping[str, str]]


def load_facts() -> list[FactRecord]:
    """Return the sample's records, ordered by table and key."""
    records = [
        FactRecord(TABLE_OF_KIND[kind], entry["key"], {lang: entry[lang] for lang in get_args(Lang)})
        for path in FACTS_DIR.glob("*.toml")
        for kind, entries in tomllib.loads(path.read_text("utf-8")).items()
        for entry in entries
    ]
    return sorted(records, key=lambda record: (record.table, record.key))


def build_database(records: Iterable[FactRecord], lang: Lang, path: Path) -> dict[str, int]:
    """Write the `lang` texts of `records` to the SQLite file `path`, and return the number of rows by table.

    An existing file is replaced. Row ids follow the order of `records` from 1; equal input gives equal bytes. Raises
    DataError when the file cannot be written.
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
    with closing(sqlite3.connect(path, isolation_level=None)) as connection:
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
    return counts
