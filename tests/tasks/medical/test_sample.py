"""The sample facts that the project ships are well formed and say the same in both languages."""

from __future__ import annotations

import re
from collections.abc import Iterator

import pytest

from sql_agent.schemas import Lang
from sql_agent.tasks.medical.sample import FactRecord, load_facts
from sql_agent.tasks.medical.tables import NAME_COLUMNS, TABLES

# Pinyin initials exist for Chinese names only.
ZH_ONLY = {"med_name_initial"}
SEPARATORS: dict[Lang, str] = {"en": "; ", "zh": "；"}
KEY = re.compile(r"[a-z0-9]+(-[a-z0-9]+)*")
DOSE = re.compile(
    r"\d\s*(?:mg|mcg|µg|μg|g|ml|IU|units?|tablets?|capsules?|毫克|微克|克|毫升|单位|片|粒)(?![a-zA-Z])", re.IGNORECASE
)


@pytest.fixture(scope="module")
def sample() -> list[FactRecord]:
    return load_facts()


def texts(sample: list[FactRecord]) -> Iterator[tuple[str, Lang, str]]:
    """Yield the place of each text ("aspirin.en.form"), its language and the text."""
    for record in sample:
        for lang, columns in record.values.items():
            yield from ((f"{record.key}.{lang}.{column}", lang, text) for column, text in columns.items())


def test_there_are_enough_drugs_and_diseases(sample: list[FactRecord]) -> None:
    tables = [record.table for record in sample]
    assert tables.count("drugs_info") >= 60
    assert tables.count("disease") >= 40


def test_every_record_says_the_same_in_both_languages(sample: list[FactRecord]) -> None:
    for record in sample:
        en, zh = record.values["en"], record.values["zh"]
        assert set(en) == set(zh) - ZH_ONLY, record.key
        assert en[NAME_COLUMNS[record.table]].isascii(), record.key
        assert not zh[NAME_COLUMNS[record.table]].isascii(), record.key
        for column, text in en.items():
            assert len(text.split(SEPARATORS["en"])) == len(zh[column].split(SEPARATORS["zh"])), (record.key, column)


def test_every_text_has_a_column_of_its_table(sample: list[FactRecord]) -> None:
    for record in sample:
        for lang, columns in record.values.items():
            known = {*TABLES[record.table]} - {"id"}
            assert columns.keys() <= (known if lang == "zh" else known - ZH_ONLY), record.key
            assert NAME_COLUMNS[record.table] in columns, record.key


def test_every_text_is_a_list_of_different_items_without_a_dose(sample: list[FactRecord]) -> None:
    for place, lang, text in texts(sample):
        items = text.split(SEPARATORS[lang])
        assert text == text.strip(), place
        assert "\n" not in text, place
        assert all(item.strip() and not re.search("[;；]", item) for item in items), place
        assert len(set(items)) == len(items), place
        assert not DOSE.search(text), place


def test_a_key_or_name_comes_once(sample: list[FactRecord]) -> None:
    names = []
    for record in sample:
        assert KEY.fullmatch(record.key), record.key
        of_record = {record.key, *(columns[NAME_COLUMNS[record.table]] for columns in record.values.values())}
        names += [(record.table, name) for name in of_record]
    assert len(set(names)) == len(names)
