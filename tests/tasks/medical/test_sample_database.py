"""The database made of the sample facts holds all of them, and is the same each time."""

from __future__ import annotations

import hashlib
import sqlite3
from pathlib import Path

import pytest

from sql_agent.database import open_database
from sql_agent.errors import DatabaseFileError, DataError
from sql_agent.schemas import Lang
from sql_agent.tasks.medical.sample import FactRecord, build_database, load_facts
from sql_agent.tasks.medical.tables import SCHEMA


@pytest.fixture(scope="module")
def sample() -> list[FactRecord]:
    return load_facts()


@pytest.mark.parametrize("lang", ["en", "zh"])
def test_two_builds_are_the_same_file(sample: list[FactRecord], tmp_path: Path, lang: Lang) -> None:
    one, two = tmp_path / "one.db", tmp_path / "folder" / "two.db"
    build_database(sample, lang, one)
    build_database(sample, lang, two)
    digests = {hashlib.sha256(path.read_bytes()).hexdigest() for path in (one, two)}
    assert len(digests) == 1
    assert sorted(path.name for path in tmp_path.iterdir()) == ["folder", "one.db"]


@pytest.mark.parametrize("lang", ["en", "zh"])
def test_the_built_database_holds_every_fact(sample: list[FactRecord], tmp_path: Path, lang: Lang) -> None:
    path = tmp_path / "sample.db"
    counts = build_database(sample, lang, path)
    open_database(path, SCHEMA).close()
    connection = sqlite3.connect(path)
    for table, count in counts.items():
        records = [record for record in sample if record.table == table]
        assert count == len(records)
        for row_id, record in enumerate(records, 1):
            columns = ", ".join(record.values[lang])
            row = connection.execute(f"SELECT {columns} FROM {table} WHERE id = {row_id}").fetchone()
            assert row == tuple(record.values[lang].values())
    connection.close()


def test_a_failed_build_leaves_the_old_file(tmp_path: Path) -> None:
    path = tmp_path / "sample.db"
    path.write_bytes(b"old")
    broken = FactRecord("drugs_info", "x", {"en": {"no_such_column": "x"}, "zh": {}})
    with pytest.raises(DataError, match="cannot write"):
        build_database([broken], "en", path)
    assert path.read_bytes() == b"old"
    assert list(tmp_path.iterdir()) == [path]
    with pytest.raises(DatabaseFileError):
        open_database(path, SCHEMA)
