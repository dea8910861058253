"""The phrase banks are complete, fill in their slots, and keep the wordings of the test split to it."""

from __future__ import annotations

import re
import string
import tomllib
from collections import Counter
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, get_args

import pytest

from sql_agent.schemas import Lang
from sql_agent.tasks.medical.phrasing import PHRASINGS_DIR, wording

FILES = ("asks_drugs_info", "asks_disease", "situations", "topics", "kinds", "patterns", "searches", "passing")
PERSON = {"they", "them", "their"}
# What a sentence may leave open, by file.
SLOTS = {
    "asks_drugs_info": {"name"} | PERSON,
    "asks_disease": {"name"} | PERSON,
    "situations": {"name", "asker"} | PERSON,
    "topics": {"name", "topic"} | PERSON,
    "kinds": {"name"} | PERSON,
    "searches": {"one", "other"},
    "passing": {"name", "kind", "asker"},
    "patterns": {"name", "other", "names", "rows", "field", "clause", "first", "second", "item", "keyword", "topic"}
    | PERSON,
}
# Wordings of one column, situations of one table, and people: fewer are soon known by heart.
MIN_WORDINGS: dict[Lang, dict[str, int]] = {"en": {"train": 45, "test": 8}, "zh": {"train": 60, "test": 10}}
MIN_SITUATIONS: dict[Lang, dict[str, int]] = {"en": {"train": 80, "test": 20}, "zh": {"train": 80, "test": 20}}
MIN_ASKERS: dict[Lang, int] = {"en": 60, "zh": 60}
# The languages that have banks.
LANGS: list[Lang] = [lang for lang in get_args(Lang) if (PHRASINGS_DIR / lang).is_dir()]
TABLES = ("drugs_info", "disease")

each_language = pytest.mark.parametrize("lang", LANGS)
each_file = pytest.mark.parametrize("name", FILES)


def _read(lang: Lang, name: str) -> dict[str, Any]:
    return tomllib.loads(Path(PHRASINGS_DIR / lang / f"{name}.toml").read_text(encoding="utf-8"))


def _halves(bank: Mapping[str, Any], path: str = "") -> Iterator[tuple[str, Any, Any]]:
    """All places of a bank that have wordings for training and others for the test split."""
    if "train" in bank and "test" in bank:
        yield path, bank["train"], bank["test"]
        return
    for key, value in bank.items():
        if isinstance(value, dict):
            yield from _halves(value, f"{path}.{key}" if path else key)


def _sentences(half: Any) -> list[str]:
    """The texts of one half: a list, or `named` and `after`."""
    if isinstance(half, dict):
        return [*half.get("named", []), *half.get("after", [])]
    return [text for text in half if isinstance(text, str)]


def _slots(text: str) -> Counter[str]:
    return Counter(slot for _, slot, _, _ in string.Formatter().parse(text) if slot is not None)


def _plain(text: str) -> str:
    """`text` without capitals and punctuation, which do not make another wording."""
    return re.sub(r"\W+", " ", text.casefold()).strip()


@each_language
@pytest.mark.parametrize("table", TABLES)
def test_each_column_with_a_name_in_words_is_asked_in_many_ways(lang: Lang, table: str) -> None:
    bank = _read(lang, f"asks_{table}")
    assert set(bank) == set(wording(lang).columns[table])
    for column, halves in bank.items():
        for half, least in MIN_WORDINGS[lang].items():
            named, after = halves[half]["named"], halves[half]["after"]
            total = len(named) + len(after)
            assert total >= least, (column, half)
            assert 3 * min(len(named), len(after)) >= total, (column, half)


@each_language
@each_file
def test_no_wording_of_the_test_split_is_trained_on(lang: Lang, name: str) -> None:
    for path, train, test in _halves(_read(lang, name)):
        trained = set(map(_plain, _sentences(train)))
        assert not trained & set(map(_plain, _sentences(test))), path


@each_language
@pytest.mark.parametrize("table", TABLES)
def test_a_wording_asks_for_one_column_only(lang: Lang, table: str) -> None:
    halves = _halves(_read(lang, f"asks_{table}"))
    times = Counter(_plain(text) for _, *both in halves for half in both for text in _sentences(half))
    assert [text for text, count in times.items() if count > 1] == []


@each_language
@each_file
def test_sentences_leave_open_only_what_can_be_filled_in(lang: Lang, name: str) -> None:
    for path, *both in _halves(_read(lang, name)):
        for half in both:
            for text in _sentences(half):
                assert set(_slots(text)) <= SLOTS[name], (path, text)


@each_language
@pytest.mark.parametrize("name", ["asks_drugs_info", "asks_disease", "topics", "kinds"])
def test_a_complete_question_names_the_entity_and_one_that_follows_does_not(lang: Lang, name: str) -> None:
    for path, *both in _halves(_read(lang, name)):
        for half in both:
            for text in half["named"]:
                assert _slots(text)["name"] == 1 and not PERSON & set(_slots(text)), (path, text)
            for text in half["after"]:
                assert "name" not in _slots(text), (path, text)


@each_language
def test_each_question_about_a_topic_says_the_topic(lang: Lang) -> None:
    topics = _read(lang, "topics")
    for path, *both in _halves(topics["asks"]):
        for half in both:
            assert all("topic" in _slots(text) for text in _sentences(half)), path
    asked = {topic for columns in topics["asks"].values() for asks in columns.values() for topic in asks["topics"]}
    assert asked == set(topics["topics"])


@each_language
def test_questions_of_one_topic_stand_beside_a_topic_of_their_column(lang: Lang) -> None:
    for columns in _read(lang, "topics")["asks"].values():
        for asks in columns.values():
            own = asks.get("own", {})
            assert set(own) <= set(asks["topics"])
            for path, train, test in _halves(own):
                assert not set(map(_plain, _sentences(train))) & set(map(_plain, _sentences(test))), path
                for half in (train, test):
                    assert all(_slots(text)["name"] == 1 for text in half.get("named", [])), path
                    assert all("name" not in _slots(text) for text in half.get("after", [])), path


@each_language
def test_each_kind_of_items_is_asked_for_and_told_from_the_rest(lang: Lang) -> None:
    bank = _read(lang, "kinds")
    columns = [asks for of_table in bank["asks"].values() for asks in of_table.values()]
    assert {kind for asks in columns for kind in asks["kinds"]} == set(bank["kinds"])
    for asks in columns:
        assert set(asks.get("own", {})) | set(asks.get("own_rest", {})) <= set(asks["kinds"])
    for name, kind in bank["kinds"].items():
        lists = [kind["words"], kind.get("outside", []), kind.get("doubtful", [])]
        assert sum(map(len, lists)) == len({word.casefold() for words in lists for word in words}), name


@each_language
def test_there_are_situations_and_people_enough(lang: Lang) -> None:
    bank = _read(lang, "situations")
    assert len(bank["askers"]["train"]) >= MIN_ASKERS[lang]
    askers = {half: {asker["who"] for asker in bank["askers"][half]} for half in ("train", "test")}
    assert not askers["train"] & askers["test"]
    for table in TABLES:
        for half, least in MIN_SITUATIONS[lang].items():
            situations = bank[table][half]
            assert len(set(map(_plain, situations))) >= least, (table, half)
            assert all(_slots(text)["name"] == 1 for text in situations), (table, half)
            assert any("asker" not in _slots(text) for text in situations), (table, half)


@each_language
def test_a_situation_speaks_of_a_person_only_where_it_has_one(lang: Lang) -> None:
    bank = _read(lang, "situations")
    for table in TABLES:
        for text in (*bank[table]["train"], *bank[table]["test"]):
            assert "asker" in _slots(text) or not PERSON & set(_slots(text)), text


@each_language
@pytest.mark.parametrize(("part", "slots"), [("clauses", set()), ("predicates", {"keyword"}), ("yes_no", {"item"})])
def test_what_is_put_into_a_pattern_has_its_own_slot(lang: Lang, part: str, slots: set[str]) -> None:
    for path, *both in _halves(_read(lang, "patterns")[part]):
        for half in both:
            assert all(slots <= set(_slots(text)) <= slots | {"name"} | PERSON for text in _sentences(half)), path


def test_all_languages_ask_the_same_kinds_of_questions() -> None:
    pools = [set(_read(lang, "patterns")["pools"]) for lang in LANGS]
    assert pools and all(names == pools[0] for names in pools)
