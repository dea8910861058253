"""The sample facts that the project ships, and the database made of them."""

from __future__ import annotations

import hashlib
import sqlite3
from pathlib import Path

import pytest

from sql_agent.cli.data import main
from sql_agent.data.medical.sample_database import build_database
from sql_agent.data.medical.sample_facts import SEPARATORS, FactRecord, load_facts
from sql_agent.data.medical.schema import NAME_COLUMNS, SCHEMA
from sql_agent.database import open_database
from sql_agent.errors import DatabaseFileError, DataError
from sql_agent.schemas import Lang

GOOD = """
[[drug]]
key = "aspirin"
[drug.en]
med_name = "Aspirin"
form = "tablet; capsule"
[drug.zh]
med_name = "阿司匹林"
med_name_initial = "ASPL"
form = "片剂；胶囊"
"""


@pytest.fixture(scope="module")
def sample() -> list[FactRecord]:
    return load_facts()


def test_there_are_enough_drugs_and_diseases(sample: list[FactRecord]) -> None:
    tables = [record.table for record in sample]
    assert tables.count("drugs_info") >= 60
    assert tables.count("disease") >= 40


def test_every_record_says_the_same_in_both_languages(sample: list[FactRecord]) -> None:
    for record in sample:
        en, zh = record.values["en"], record.values["zh"]
        assert set(en) == set(zh) - {"med_name_initial"}, record.key
        assert en[NAME_COLUMNS[record.table]].isascii(), record.key
        assert not zh[NAME_COLUMNS[record.table]].isascii(), record.key
        for column, text in en.items():
            assert len(text.split(SEPARATORS["en"])) == len(zh[column].split(SEPARATORS["zh"])), (record.key, column)


def test_a_good_file_loads(tmp_path: Path) -> None:
    (tmp_path / "drugs.toml").write_text(GOOD, encoding="utf-8")
    (record,) = load_facts(tmp_path)
    assert (record.table, record.key) == ("drugs_info", "aspirin")


@pytest.mark.parametrize(
    ("old", "new", "named"),
    [
        ('form = "tablet; capsule"', 'form = "tablet"', "form has 1 items in en and 2 in zh"),
        ('form = "tablet; capsule"', "", "form is in one language only"),
        ('form = "tablet; capsule"', 'form = "tablet 5 mg; capsule"', "looks like a dose"),
        ('form = "片剂；胶囊"', 'form = "片剂100毫克；胶囊"', "looks like a dose"),
        ('form = "tablet; capsule"', 'form = "tablet; tablet"', "twice"),
        ('form = "tablet; capsule"', 'form = "tablet；capsule"', "separated by"),
        ('form = "tablet; capsule"', 'shape = "tablet; capsule"', "shape is not a column"),
        ('form = "tablet; capsule"', 'form = " "', "empty"),
        ('med_name = "Aspirin"', 'form_2 = "x"', "has no med_name"),
        ('key = "aspirin"', 'key = "Aspirin 2"', "key 'Aspirin 2'"),
        ("[[drug]]", "[[medicine]]", "unknown entry"),
        ('key = "aspirin"', 'key = "aspirin', "not valid TOML"),
    ],
)
def test_a_fault_is_named_with_its_place(tmp_path: Path, old: str, new: str, named: str) -> None:
    text = GOOD.replace(old, new) if old != "[[drug]]" else GOOD.replace("drug", "medicine")
    (tmp_path / "drugs.toml").write_text(text, encoding="utf-8")
    with pytest.raises(DataError, match=r"drugs\.toml") as caught:
        load_facts(tmp_path)
    assert named in caught.value.message


def test_a_key_or_name_comes_once(tmp_path: Path) -> None:
    (tmp_path / "a.toml").write_text(GOOD, encoding="utf-8")
    (tmp_path / "b.toml").write_text(GOOD.replace('key = "aspirin"', 'key = "other"'), encoding="utf-8")
    with pytest.raises(DataError, match="twice"):
        load_facts(tmp_path)


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


def test_build_writes_where_it_is_told(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "mine.db"
    assert main(["build", "--lang", "zh", "--out", str(path)]) == 0
    assert "77 rows in drugs_info" in capsys.readouterr().out
    with open_database(path, SCHEMA) as database:
        assert database.query("SELECT form FROM drugs_info WHERE med_name = '二甲双胍'").count == 1
