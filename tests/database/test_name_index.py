"""A search among names finds those that a person means, and no others."""

from __future__ import annotations

import pytest

from sql_agent.database.name_index import Name, NameIndex


def index(*names: str) -> NameIndex:
    return NameIndex((name, Name(name, "rows", "name")) for name in names)


@pytest.mark.parametrize(
    ("names", "text", "expected"),
    [
        (["红霉素", "青霉酸"], "青霉素", ["青霉酸", "红霉素"]),  # people rarely mistype the first character
        (["胃痛"], "胃病", []),  # a change of one in two characters makes another name
        (["art"], "heart", []),
        (["Ibuprofen tablets"], "my tablets", ["Ibuprofen tablets"]),
        (["Ibuprofen tablets"], "where do people usually keep all of their old tablets", []),
        (["糖尿病", "糖尿病肾病", "肾病"], "得了糖尿病肾病怎么办", ["糖尿病肾病"]),
        (["复方消肿痔疮片", "痔疮"], "刚查出复方硝肿痔疮片", ["复方消肿痔疮片", "痔疮"]),
        ([f"第{number}号免疫球蛋白" for number in range(41)], "一种新的人免疫球蛋白质检测", []),
    ],
)
def test_misspelt_names_come_before_names_in_the_text(names: list[str], text: str, expected: list[str]) -> None:
    assert [name.text for name in index(*names).find(text).near] == expected


@pytest.mark.parametrize(
    ("names", "text", "expected"),
    [
        (["小儿甲状腺功能亢进", "新生儿的甲状腺功能亢进"], "甲亢", ["小儿甲状腺功能亢进"]),
        (["甲亢进症", "甲状腺亢奋进展"], "亢进", ["甲状腺亢奋进展"]),
        (["房室传导阻滞"], "房室阻滞怎么办", ["房室传导阻滞"]),
        (["房室传导阻滞"], "刚查出房室阻滞", ["房室传导阻滞"]),
        ([f"复方{drug}" for drug in "甲乙丙丁戊"], "新复方", []),
        (["Heart failure", "Chronic heart failure"], "HF", ["Heart failure"]),
    ],
)
def test_an_abbreviation_is_found_with_words_around_it(names: list[str], text: str, expected: list[str]) -> None:
    assert [name.text for name in index(*names).find(text).abbreviated] == expected


def test_the_row_with_a_name_comes_before_rows_with_the_alias_and_a_longer_name_before_an_alias() -> None:
    pairs = [("大骨节病", "卡斯钦病"), ("大骨节病", "大骨节病"), ("阿奇霉素", "希舒美"), ("阿奇霉素片", "阿奇霉素片")]
    found = NameIndex((text, Name(name, "rows", "name")) for text, name in pairs)
    assert [name.text for name in found.find("大骨接病").near] == ["大骨节病", "卡斯钦病"]
    assert [name.text for name in found.find("医生开了阿奇霉素").near] == ["阿奇霉素片", "希舒美"]


def test_a_longer_name_has_an_alias_of_letters_as_a_word_of_its_own() -> None:
    pairs = [("PSC", "Sclerosing cholangitis"), ("PSCOO", "Progeria")]
    found = NameIndex((text, Name(name, "rows", "name")) for text, name in pairs)
    assert [name.text for name in found.find("PSC pt").near] == ["Sclerosing cholangitis"]
