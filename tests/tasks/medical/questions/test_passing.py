"""Classes of drugs are said in passing only where the database gives them, and never where they are the answer."""

from __future__ import annotations

import random

from sql_agent.tasks.medical.banks import banks
from sql_agent.tasks.medical.questions.catalog import Catalog
from sql_agent.tasks.medical.questions.draft import Draft
from sql_agent.tasks.medical.questions.passing import InPassing

CATALOG = Catalog(
    {
        "drugs_info": [
            {"id": 1, "med_name": "甲平", "cate_name": "钙拮抗药；其它药物；降压药", "form": "片剂"},
            {"id": 2, "med_name": "乙普利", "cate_name": "降压药", "form": "胶囊"},
            {"id": 3, "med_name": "钙拮抗药", "cate_name": None, "form": "片剂"},
        ],
        "disease": [{"id": 1, "disease_name": "痛风"}],
    },
    "zh",
)
FIRST, SECOND, _ = CATALOG.rows["drugs_info"]


def draft(column: str, **rows: object) -> Draft:
    start = Draft("drug_field", "drug_field", ("drugs_info", column), {}, "", "", (), frozenset())
    return Draft(**{**vars(start), **rows})


def test_a_class_is_said_of_one_drug_or_of_both_and_names_no_row() -> None:
    passing = InPassing(banks("zh").passing, CATALOG, "train")
    assert passing.kinds(draft("form", subject=FIRST)) == ["降压药"]
    assert passing.kinds(draft("form", pair=(FIRST, SECOND))) == ["降压药"]


def test_a_class_is_not_said_where_it_is_asked_for() -> None:
    passing = InPassing(banks("zh").passing, CATALOG, "train")
    assert passing.kinds(draft("cate_name", subject=FIRST)) == []


def test_without_a_class_no_sentence_has_a_gap() -> None:
    passing = InPassing(banks("zh").passing, CATALOG, "train")
    said = {passing.before_a_pair("drugs_info", [], random.Random(seed)) for seed in range(100)}
    assert len(said) > 10 and not any("{" in text or "都是，" in text for text in said)
    assert passing.situations([]) == ()
