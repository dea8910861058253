"""Load and check the sample facts (TOML, one record per drug or disease), and write them into a SQLite file."""

from __future__ import annotations

import re
import sqlite3
import tomllib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, get_args

from sql_agent.errors import DataError
from sql_agent.schemas import Lang
from sql_agent.system.files import atomic_write
from sql_agent.tasks.medical.tables import NAME_COLUMNS, TABLES, create_table_sql

FACTS_DIR = Path(__file__).parent / "facts"
SEPARATORS: Mapping[Lang, str] = {"en": "; ", "zh": "；"}
TABLE_OF_KIND = {"drug": "drugs_info", "disease": "disease"}
# Pinyin initials exist for Chinese names only.
ZH_ONLY = frozenset({"med_name_initial"})

_KEY = re.compile(r"[a-z0-9]+(-[a-z0-9]+)*")
_DOSE = re.compile(
    r"\d\s*(?:mg|mcg|µg|μg|g|ml|IU|units?|tablets?|capsules?|毫克|微克|克|毫升|单位|片|粒)(?![a-zA-Z])", re.I
)


@dataclass(frozen=True)
class FactRecord:
    """One drug or disease; `values` maps a language to the columns and their texts."""

    table: str
    key: str
    values: Mapping[Lang, Mapping[str, str]]


def load_facts(folder: Path = FACTS_DIR) -> list[FactRecord]:
    """Return the records of all TOML files in `folder`, ordered by table and key.

    Raises DataError with file, record key and column when a record is malformed.
    """
    paths = sorted(folder.glob("*.toml"))
    if not paths:
        raise DataError(f"no sample files in {folder}", hint="install the package again, with its data files")
    records = [record for path in paths for record in _load_file(path)]
    _refuse_repeats(records)
    return sorted(records, key=lambda record: (record.table, record.key))


def _load_file(path: Path) -> Iterable[FactRecord]:
    try:
        content = tomllib.loads(path.read_text(encoding="utf-8"))
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise DataError(f"{path.name} is not valid TOML: {error}") from None
    for kind, entries in content.items():
        if kind not in TABLE_OF_KIND or not isinstance(entries, list):
            raise DataError(f"{path.name}: unknown entry {kind!r}", hint="records start with [[drug]] or [[disease]]")
        for entry in entries:
            yield _record(path.name, TABLE_OF_KIND[kind], entry)


def _record(file: str, table: str, entry: Mapping[str, Any]) -> FactRecord:
    key = entry.get("key")
    if not isinstance(key, str) or not _KEY.fullmatch(key):
        raise DataError(f"{file}: key {key!r} of a record in {table}", hint="lower-case ASCII words joined by '-'")
    where = f"{file}: {key}"
    if set(entry) != {"key", *get_args(Lang)}:
        raise DataError(f"{where} has the entries {', '.join(sorted(entry))}", hint="give key, en and zh")
    values: dict[Lang, Mapping[str, str]] = {lang: entry[lang] for lang in get_args(Lang)}
    for lang, columns in values.items():
        _check_columns(f"{where}.{lang}", table, lang, columns)
    _check_same_items(where, values)
    return FactRecord(table, key, values)


def _check_columns(where: str, table: str, lang: Lang, columns: Mapping[str, object]) -> None:
    if NAME_COLUMNS[table] not in columns:
        raise DataError(f"{where} has no {NAME_COLUMNS[table]}")
    for column, value in columns.items():
        if column not in TABLES[table] or column == "id" or (lang != "zh" and column in ZH_ONLY):
            raise DataError(f"{where}: {column} is not a column of {table} for this language")
        problem = _problem(value, lang)
        if problem:
            raise DataError(f"{where}.{column}: {problem}")


def _problem(value: object, lang: Lang) -> str | None:
    if not isinstance(value, str) or not value.strip():
        return "empty or not a text"
    if value != value.strip() or "\n" in value:
        return "has spaces around it or a line break"
    items = value.split(SEPARATORS[lang])
    if any(";" in item or "；" in item or not item.strip() for item in items):
        return f"items are separated by {SEPARATORS[lang]!r} and contain no semicolon"
    if len(set(items)) != len(items):
        return "an item is there twice"
    if dose := _DOSE.search(value):
        return f"{dose.group()!r} looks like a dose; the sample contains none"
    return None


def _check_same_items(where: str, values: Mapping[Lang, Mapping[str, str]]) -> None:
    en, zh = values["en"], values["zh"]
    if different := set(en) ^ (set(zh) - ZH_ONLY):
        raise DataError(f"{where}: {', '.join(sorted(different))} is in one language only")
    for column in en:
        counts = {lang: len(text[column].split(SEPARATORS[lang])) for lang, text in values.items()}
        if len(set(counts.values())) > 1:
            raise DataError(f"{where}: {column} has {counts['en']} items in en and {counts['zh']} in zh")


def _refuse_repeats(records: Iterable[FactRecord]) -> None:
    seen: set[tuple[str, str]] = set()
    for record in records:
        names = {(record.table, text[NAME_COLUMNS[record.table]]) for text in record.values.values()}
        names.add((record.table, record.key))
        if repeated := names & seen:
            raise DataError(f"{record.key}: {sorted(repeated)[0][1]!r} is there twice in {record.table}")
        seen |= names


def build_database(records: Iterable[FactRecord], lang: Lang, path: Path) -> dict[str, int]:
    """Write the texts of `records` in `lang` to the SQLite file `path`, replacing it; the bytes are always the same.

    Ids count from 1 in the order of `records`. Return the number of rows by table. Raises DataError when the file
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
