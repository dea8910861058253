"""Questions as people ask: the entity is named, each split has wordings of its own, and no text comes twice."""

from __future__ import annotations

import random
import re
import string
from collections.abc import Iterator
from itertools import chain
from pathlib import Path
from typing import get_args

import pytest

from sql_agent.database import open_database
from sql_agent.database.schema import fold
from sql_agent.schemas import Lang, QueryLimits
from sql_agent.tasks.medical.banks import Asks, Banks, banks
from sql_agent.tasks.medical.phrasing import wording
from sql_agent.tasks.medical.questions.catalog import Catalog, read_catalog
from sql_agent.tasks.medical.questions.draft import name_is
from sql_agent.tasks.medical.questions.generate import TEMPLATE_GENERATORS, make_questions, task_types
from sql_agent.tasks.medical.questions.naming import Namer, renamed
from sql_agent.tasks.medical.sample import build_database, load_facts
from sql_agent.tasks.medical.tables import SCHEMA
from tests.support.medical_questions import Made, everything

LANGS = get_args(Lang)
# What a sentence of each kind may leave open for the draft to fill.
ASK_SLOTS = {"name", "they", "them", "their"}


@pytest.fixture(scope="module", params=LANGS)
def database(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("composer") / "sample.db"
    build_database(load_facts(), request.param, path)
    return path


@pytest.fixture(scope="module")
def catalog(database: Path) -> Catalog:
    return read_catalog(database)


@pytest.fixture(scope="module")
def natural(catalog: Catalog) -> Made:
    return make_questions(catalog, per_type=60, style="natural")


@pytest.fixture(scope="module")
def mixed(catalog: Catalog) -> Made:
    return make_questions(catalog, per_type=60)


def slots(text: str) -> set[str]:
    return {name for _, name, _, _ in string.Formatter().parse(text) if name}


def halves(bank: Banks) -> Iterator[tuple[Asks, Asks]]:
    """The sentences of train and of test for each thing that is asked."""
    patterns = bank.patterns
    for tables in (bank.asks, bank.topics.asks, patterns.yes_no, patterns.lacking):
        for columns in tables.values():
            yield from ((pool.train, pool.test) for pool in columns.values())
    yield from ((pool.train, pool.test) for pool in patterns.pools.values())


@pytest.mark.parametrize("lang", LANGS)
def test_every_column_with_a_name_in_words_has_enough_ways_to_ask_for_it(lang: Lang) -> None:
    for table, columns in wording(lang).columns.items():
        assert set(banks(lang).asks[table]) == set(columns)
        for column, pool in banks(lang).asks[table].items():
            for asks, least in ((pool.train, 24), (pool.test, 6)):
                both = [*asks.named, *asks.after]
                assert len(set(both)) == len(both) >= least, (table, column)
                assert 3 * min(len(asks.named), len(asks.after)) >= len(both), (table, column)
            named = (*pool.train.named, *pool.test.named)
            after = (*pool.train.after, *pool.test.after)
            assert all(slots(text) == {"name"} for text in named), (table, column)
            assert all(slots(text) <= ASK_SLOTS - {"name"} for text in after), (table, column)


@pytest.mark.parametrize("lang", LANGS)
def test_no_wording_of_the_test_split_is_trained_on(lang: Lang) -> None:
    bank = banks(lang)
    train, test = set(), set()
    for trained, held_out in halves(bank):
        train |= {*trained.named, *trained.after}
        test |= {*held_out.named, *held_out.after}
    told = bank.situations
    for part in (told.drugs_info, told.disease, told.openers, told.tails, told.everything):
        assert not set(part.train) & set(part.test)
    assert not train & test
    assert not {asker.who for asker in told.askers.train} & {asker.who for asker in told.askers.test}


@pytest.mark.parametrize("lang", LANGS)
def test_what_is_said_of_a_person_follows_only_where_there_is_one(lang: Lang) -> None:
    told = banks(lang).situations
    for table in (told.drugs_info, told.disease):
        for part in (table.train, table.test):
            assert all("name" in slots(text) and slots(text) <= {"name", "asker"} for text in part)
            assert any("asker" in slots(text) for text in part)
            assert any("asker" not in slots(text) for text in part)


def test_what_is_said_beside_the_question_names_no_drug_or_disease_of_the_database(catalog: Catalog) -> None:
    bank = banks(catalog.lang)
    told, passing = bank.situations, bank.passing
    parts = (told.drugs_info, told.disease, told.openers, told.tails, told.everything, passing.named)
    others = (*bank.searches.lead_ins.values(), *passing.pairs.values())
    texts = chain.from_iterable(part.train + part.test for part in (*parts, *others))
    for text in texts:
        assert not [row.name for table in catalog.rows for row, _ in catalog.names_in(table, text)], text


def test_no_text_comes_twice_or_with_an_open_slot(natural: Made) -> None:
    texts = [question.question for question in everything(natural)]
    assert len(set(texts)) == len(texts)
    assert not any("{" in text or "}" in text for text in texts)


def test_no_question_shows_a_statement_twice(natural: Made) -> None:
    for question in everything(natural):
        assert len(set(question.statements)) == len(question.statements), question


def test_the_name_that_the_question_uses_is_the_one_looked_up_first(natural: Made) -> None:
    one_row = {"drug_field", "disease_field", "part_of_field", "yes_no"}
    for question in everything(natural):
        if question.task_type in one_row:
            (first,) = re.findall(r"_name (?:=|LIKE) '((?:[^']|'')+)'", question.statements[0])
            assert fold(first.replace("''", "'").strip("%")) in fold(question.question), question


def test_some_questions_write_the_name_in_another_way_and_show_how_to_recover(database: Path, natural: Made) -> None:
    one_row = {"drug_field", "disease_field", "part_of_field", "yes_no"}
    asked = [question for question in everything(natural) if question.task_type in one_row]
    recovering = [question for question in asked if len(question.statements) > 1]
    assert 0.2 < len(recovering) / len(asked) < 0.6
    led = 0
    with open_database(database, SCHEMA, QueryLimits(deadline_s=30.0)) as opened:
        for question in recovering:
            first, *_, last = question.statements
            miss = opened.query(first)
            assert not any(cell for row in miss.records for cell in row), question
            assert miss.hint, question
            (column,) = re.findall(r"SELECT (\w+)", last)
            (name,) = re.findall(r"_name (?:=|LIKE) '((?:[^']|'')+)'", last)
            led += name.strip("%").replace("''", "'") in miss.hint or column in miss.hint
    # The others are everyday names, which people know and no row tells.
    assert led / len(recovering) > 0.5


def test_a_name_that_no_row_has_is_looked_for_as_a_part_too_before_giving_up(database: Path, natural: Made) -> None:
    names = {row.name for rows in read_catalog(database).rows.values() for row in rows}
    absent = 0
    for question in everything(natural):
        (name,) = re.findall(r"_name = '((?:[^']|'')+)'$", question.statements[0]) or [""]
        if question.task_type == "unanswerable" and name and name.replace("''", "'") not in names:
            absent += 1
            assert f"LIKE '%{name}%'" in question.statements[-1] or len(question.statements) > 1, question
    assert absent


@pytest.mark.slow
def test_first_queries_that_find_nothing_are_about_a_third_of_all(database: Path, mixed: Made) -> None:
    asked = [q for q in everything(mixed) if q.task_type != "unanswerable"]
    with open_database(database, SCHEMA, QueryLimits(deadline_s=30.0)) as opened:
        first = [opened.query(question.statements[0]) for question in asked]
    missed = [answer for answer in first if not any(cell for row in answer.records for cell in row)]
    assert 0.15 < len(missed) / len(asked) < 0.38


def test_a_short_name_or_typo_leads_to_its_row_alone() -> None:
    rows = ["硝苯地平控释片", "盐酸二甲双胍片", "盐酸二甲双胍缓释片", "阿莫西林胶囊", "阿莫西林颗粒"]
    drugs: list[dict[str, object]] = [{"id": n, "med_name": name} for n, name in enumerate(rows)]
    drugs[0]["description"] = "商品名：拜新同；性状：薄膜衣片"
    small = Catalog({"drugs_info": drugs, "disease": [{"id": 1, "disease_name": "痛风"}]}, "zh")
    namer, rng = Namer(small, banks("zh").names), random.Random(0)
    asked: dict[str, set[str]] = {}
    for row in small.askable("drugs_info"):
        for _ in range(200):
            asked.setdefault(row.name, set()).add((naming := namer.choose(row, rng)).asked)
            sql = renamed(f"SELECT form FROM drugs_info WHERE {name_is(row)}", row, naming)
            assert sql.count("SELECT") == (2 if naming.misses else 1)
    assert {"硝苯地平控释", "拜新同"} <= asked["硝苯地平控释片"]
    assert not {"二甲双胍", "盐酸二甲双胍"} & set(chain.from_iterable(asked.values()))
    assert "阿莫西林" not in asked["阿莫西林胶囊"]
    for name, others in asked.items():
        assert not others & (set(rows) - {name})


def test_the_template_style_has_formal_sentences_only(catalog: Catalog) -> None:
    formal = make_questions(catalog, per_type=10, style="template")
    assert task_types("template") == tuple(TEMPLATE_GENERATORS)
    words = wording(catalog.lang)
    starts = {re.split(r"[{]", text)[0] for pool in words.phrasings.values() for text in pool}
    assert {question.task_type for question in everything(formal)} == set(TEMPLATE_GENERATORS)
    assert all(len(question.statements) == 1 for question in everything(formal))
    assert any(question.question.startswith(start) for question in everything(formal) for start in starts if start)


def test_the_mixed_style_has_a_formal_third_of_what_templates_can_ask(
    catalog: Catalog, mixed: Made, natural: Made
) -> None:
    formal = _formal_texts(catalog)
    asked = [question for question in everything(mixed) if question.task_type == "drug_field"]
    share = sum(_shape(question.question, catalog) in formal for question in asked) / len(asked)
    assert 0.2 < share < 0.5
    plain = [question for question in everything(natural) if question.task_type == "drug_field"]
    assert sum(_shape(question.question, catalog) in formal for question in plain) / len(plain) < 0.1


def _formal_texts(catalog: Catalog) -> set[str]:
    words = wording(catalog.lang)
    columns = [name for names in words.columns["drugs_info"].values() for name in names]
    specific = {text for texts in words.specific["drugs_info"].values() for text in texts}
    return specific | {text.replace("{field}", name) for text in words.phrasings["drug_field"] for name in columns}


def _shape(text: str, catalog: Catalog) -> str:
    """The text with {name} for the longest name of a drug in it."""
    names = [row.name for row, _ in catalog.names_in("drugs_info", text)]
    return text.replace(max(names, key=len), "{name}") if names else text


def test_a_file_of_a_bank_with_an_unknown_key_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="extra"):
        Asks.model_validate({"named": ["{name}?"], "extra": []})
