"""Nothing is asked of a row that says something unclear: in other words, elsewhere, joined, or in the wrong column."""

from __future__ import annotations

import random
from collections.abc import Iterable, Mapping
from itertools import chain

import pytest

from sql_agent.schemas import Lang
from sql_agent.tasks.medical.banks import Topic, banks
from sql_agent.tasks.medical.phrasing import wording
from sql_agent.tasks.medical.questions.catalog import Catalog
from sql_agent.tasks.medical.questions.draft import Corpus, Draft
from sql_agent.tasks.medical.questions.keywords import matches
from sql_agent.tasks.medical.questions.naming import Namer
from sql_agent.tasks.medical.questions.negation import negation
from sql_agent.tasks.medical.questions.topics import TopicReader
from sql_agent.tasks.medical.questions.yes_no import yes_no


def source_of(
    drugs: Iterable[Mapping[str, object]],
    diseases: Iterable[Mapping[str, object]] = (),
    lang: Lang = "zh",
    seed: int = 0,
) -> Corpus:
    """A source of these rows, which get numbers, and names where they have none."""
    tables = {
        "drugs_info": [{"id": n, "med_name": f"感冒灵{n}", **drug} for n, drug in enumerate(drugs)],
        "disease": [{"id": n, "disease_name": f"热病{n}", **row} for n, row in enumerate(diseases)]
        or [{"id": 1, "disease_name": "痛风"}],
    }
    catalog = Catalog(tables, lang)
    by_split = {"train": {table: catalog.askable(table) for table in tables}}
    return Corpus(catalog, wording(lang), by_split, [], random.Random(seed), 40, banks(lang))


def lacking(draft: Draft) -> bool:
    return "NOT LIKE" in draft.sql and "_name NOT LIKE" not in draft.sql


@pytest.mark.parametrize(("said", "asked"), [("皮疹", True), ("大汗", False), ("出汗", False), ("冒汗不止", False)])
def test_a_row_that_says_it_in_other_words_does_not_lack_it(said: str, asked: bool) -> None:
    drugs = [{"indication": "感冒", "adverse_reactions": text} for text in ("多汗", "多汗", "皮疹", said)]
    made = chain.from_iterable(negation(source_of(drugs, seed=seed)) for seed in range(20))
    assert any(lacking(draft) and "NOT LIKE '%多汗%'" in draft.sql for draft in made) == asked


@pytest.mark.parametrize(
    ("lang", "cell", "says"),
    [
        ("zh", "参见氢氯噻嗪。", False),
        ("zh", "详见：肝素", False),
        ("zh", "同氨茶碱。", False),
        ("zh", "同时服用华法林", True),
        ("zh", "见光易变色", True),
        ("en", "See warfarin", False),
        ("en", "seek help at once", True),
    ],
)
def test_a_cell_that_names_another_text_says_nothing_itself(lang: Lang, cell: str, says: bool) -> None:
    source = source_of([{"precautions": cell}], lang=lang)
    assert source.says_something(cell) == says
    assert bool(source.catalog.items(source.catalog.rows["drugs_info"][0], "precautions")) == says


def test_what_a_cell_leaves_to_another_text_is_no_ground_for_a_no() -> None:
    source = source_of({"precautions": text} for text in ("忌烟酒", "忌酒", "参见肝素。", "参见肝素。"))
    asked = [draft for draft in yes_no(source) if draft.pool.startswith(("claim", "opposite"))]
    assert not [draft for draft in asked if draft.subject and "参见" in (draft.subject.values["precautions"] or "")]


def test_initials_that_the_database_gives_to_another_row_do_not_name_this_one() -> None:
    leukaemia = {"disease_name": "急性淋巴细胞白血病", "overview": "英文名称：acute lymphoblastic leukaemia"}
    found = []
    for initials in ("XYZ", "ALL"):
        source = source_of([{"med_name": "安乐灵", "med_name_initial": initials}], [leukaemia])
        namer, (row,) = Namer(source.catalog, source.natural.names), source.catalog.askable("disease")
        found.append({namer.choose(row, source.rng).asked for _ in range(300)})
    assert "ALL" in found[0] and "ALL" not in found[1]


def test_an_item_that_joins_several_things_belongs_to_a_topic_with_all_of_them_or_is_not_asked_about() -> None:
    reader = TopicReader(Topic(said=("肝和肾",), words=("肝", "肾")))
    assert reader.about(["肝和肾损害", "呕血"]) == ["肝和肾损害"]
    assert reader.about(["肝肾功能损害以及呕血", "皮疹"]) is None
    assert reader.about(["缓和疼痛", "病变波及皮肤"]) == []


def test_nobody_asks_whether_a_column_lists_what_stands_there_by_mistake() -> None:
    drugs = [{"indication": "疼痛", "drug_interactions": "华法林；地高辛"} for _ in range(12)]
    drugs += [{"indication": "发热", "drug_interactions": "疼痛；胰岛素"}]
    asked = [draft for draft in yes_no(source_of(drugs)) if draft.pool == "yes_no"]
    items = {draft.slots["item"] for draft in asked if draft.column == ("drugs_info", "drug_interactions")}
    assert items and not items & {"疼痛", "疼"}


def test_what_a_drug_is_for_is_not_asked_for_as_its_side_effect() -> None:
    cells = [("失眠", "失眠；皮疹"), ("咳嗽", "便秘"), ("鼻塞", "呕吐")]
    drugs = [{"indication": use, "adverse_reactions": harm} for use, harm in cells * 5]
    asked = [draft for draft in yes_no(source_of(drugs)) if draft.pool == "yes_no"]
    yes = {draft.evidence[0].quote for draft in asked if draft.answer == "是"}
    assert {"皮疹", "便秘"} <= yes and "失眠" not in yes


def test_how_a_drug_looks_is_no_form_to_ask_for() -> None:
    drugs = [{"form": form} for form in ("胶囊；棕褐色液体", "软膏", "粉针") * 5]
    asked = {draft.slots["item"] for draft in yes_no(source_of(drugs)) if draft.pool == "yes_no"}
    assert asked and "棕褐色液体" not in asked


def test_a_claim_is_not_asked_of_a_row_whose_name_tells() -> None:
    names = ("清热口服液", "清热片", "感冒灵", "止咳宁", "安神乐", "健胃宝")
    forms = ("口服液", "片剂", "口服液", "片剂", "糖浆", "胶囊")
    drugs = [{"med_name": name, "form": form} for name, form in zip(names, forms, strict=True)]
    asked = {draft.slots["name"] for draft in yes_no(source_of(drugs)) if "drinkable" in draft.pool}
    assert asked and not asked & {"清热口服液", "清热片"}


def test_words_with_which_a_cell_goes_on_are_not_searched_for() -> None:
    uses = ["用于感冒", "感冒", "用于感冒；头痛", "故应慎重"]
    found = {condition.keyword for condition, _ in matches(source_of({"indication": use} for use in uses))}
    assert "感冒" in found
    assert not [word for word in found if word.startswith(("用于", "故"))]
