"""The sample facts that the project ships say the same in both languages; a faulty file is named."""

from __future__ import annotations

from pathlib import Path

import pytest

from sql_agent.errors import DataError
from sql_agent.tasks.medical.sample import SEPARATORS, FactRecord, load_facts
from sql_agent.tasks.medical.tables import NAME_COLUMNS

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
