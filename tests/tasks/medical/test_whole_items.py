"""A name or keyword inside a longer word or name is no reference: in both languages, in joins and in searches."""

from __future__ import annotations

import random
import re
from collections.abc import Iterable, Mapping

import pytest

from sql_agent.schemas import Lang
from sql_agent.tasks.medical.phrasing import wording
from sql_agent.tasks.medical.questions.catalog import Catalog, holds_item
from sql_agent.tasks.medical.questions.draft import Corpus, Draft
from sql_agent.tasks.medical.questions.related import relations
from sql_agent.tasks.medical.questions.search import aggregate, keyword_search


def tiny(indications: Mapping[str, str], treatments: Mapping[str, str], lang: Lang) -> Catalog:
    """Drugs with their indications and diseases with their treatments."""
    drugs: list[dict[str, object]] = [
        {"id": n, "med_name": name, "indication": text} for n, (name, text) in enumerate(indications.items())
    ]
    diseases: list[dict[str, object]] = [
        {"id": n, "disease_name": name, "treatment": text} for n, (name, text) in enumerate(treatments.items())
    ]
    return Catalog({"drugs_info": drugs, "disease": diseases}, lang)


def drugs_of(catalog: Catalog) -> dict[tuple[str, str], list[str]]:
    """The drugs of each relation by its join and its disease."""
    return {(item.pool, item.disease.name): [drug.name for drug in item.drugs] for item in relations(catalog)}


@pytest.mark.parametrize(
    ("text", "name"),
    [
        ("布洛芬；美罗", "美罗"),
        ("用于头痛。2.美罗、布洛芬", "美罗"),
        ("rest; Warfarin ; heparin", "warfarin"),
        ("Warfarin, heparin.", "Heparin"),
    ],
)
def test_a_name_between_separators_is_an_item(text: str, name: str) -> None:
    assert holds_item(text, name)


@pytest.mark.parametrize(
    ("text", "name"),
    [
        ("美罗培南", "美罗"),
        ("拉米夫定；替比夫定", "夫定"),
        ("α—干扰素；5-氟尿嘧啶", "干扰素"),
        ("α—干扰素；5-氟尿嘧啶", "氟尿嘧啶"),
        ("阿莫西林/克拉维酸钾", "阿莫西林"),
        ("控制温度和湿度", "度和"),
        ("pulmonary hypertension", "hypertension"),
        ("peginterferon; interferon-gamma", "interferon"),
        ("", "gout"),
    ],
)
def test_a_name_inside_a_longer_one_is_no_item(text: str, name: str) -> None:
    assert not holds_item(text, name)


def test_a_chinese_drug_inside_a_longer_name_is_no_answer() -> None:
    indications = {"美罗": "口疮", "夫定": "口疮", "甘油": "口疮"}
    treatments = {
        "阑尾炎": "美罗培南；手术",
        "乙型肝炎": "拉米夫定；甘油",
        "便秘": "甘油；饮水",
        "咽炎": "美罗；美罗培南",
    }
    assert drugs_of(tiny(indications, treatments, "zh")) == {
        ("treatment_to_drugs", "便秘"): ["甘油"],
        ("treatment_to_drugs", "咽炎"): ["美罗"],
    }


def test_an_english_drug_inside_a_longer_name_is_no_answer() -> None:
    indications = {"Interferon": "Warts", "Amlodipine": "Warts"}
    treatments = {
        "Hepatitis C": "peginterferon; rest",
        "Melanoma": "interferon gamma; surgery",
        "Hypertension": "amlodipine; rest",
    }
    assert drugs_of(tiny(indications, treatments, "en")) == {("treatment_to_drugs", "Hypertension"): ["Amlodipine"]}


def test_a_disease_inside_a_longer_name_is_no_indication() -> None:
    """The join's LIKE would find the drug of the longer disease too, so that the relation is left out."""
    chinese = tiny({"甲药": "头痛；便秘", "乙药": "偏头痛"}, {"头痛": "", "便秘": "", "偏头痛": ""}, "zh")
    assert drugs_of(chinese) == {("disease_to_drugs", "便秘"): ["甲药"], ("disease_to_drugs", "偏头痛"): ["乙药"]}
    english = tiny(
        {"Amlodipine": "Hypertension; Gout", "Sildenafil": "pulmonary hypertension"},
        {"Hypertension": "", "Gout": ""},
        "en",
    )
    assert drugs_of(english) == {("disease_to_drugs", "Gout"): ["Amlodipine"]}


def keywords(drafts: Iterable[Draft]) -> set[str]:
    return {re.findall(r"LIKE '%(.+)%'", draft.sql)[0] for draft in drafts}


@pytest.mark.parametrize(
    ("lang", "alone", "longer", "other"),
    [
        ("zh", "头痛", "偏头痛", "便秘"),
        ("zh", "处方药", "非处方药", "中药"),
        ("en", "headache", "cluster headache", "gout"),
        ("en", "smoking", "no smoking", "gout"),
    ],
)
def test_a_search_counts_no_keyword_inside_a_longer_term(lang: Lang, alone: str, longer: str, other: str) -> None:
    catalog = tiny({"One": alone, "Two": longer, "Three": other, "Four": alone}, {"Gout": ""}, lang)

    def source(*names: str) -> Corpus:
        group = [row for row in catalog.askable("drugs_info") if row.name in names]
        split = {"train": {"drugs_info": group}}
        return Corpus(catalog, wording(lang), split, relations=[], rng=random.Random(0), wanted=9)

    assert keywords(keyword_search(source())) == {longer, other}
    assert keywords(aggregate(source("One", "Two", "Three"))) == {longer, other}
    assert keywords(aggregate(source("One", "Three", "Four"))) == {alone, longer, other}, "all of these mean it"
