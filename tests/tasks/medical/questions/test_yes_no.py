"""Questions answered by yes or no: what cells say decides, both ways in each column."""

from __future__ import annotations

import re
from collections import Counter
from pathlib import Path
from typing import get_args

import pytest

from sql_agent.questions.rewrite_checks import Half
from sql_agent.schemas import Lang
from sql_agent.tasks.medical.banks import Asks, Claim, Halves, banks
from sql_agent.tasks.medical.phrasing import wording
from sql_agent.tasks.medical.questions.claims import ClaimReader, claim_readers
from tests.support.medical_questions import Made, everything

LANGS = get_args(Lang)
MIN_WORDINGS: dict[Lang, int] = {"zh": 20, "en": 12}
# Asked in so many ways alone; the other columns of claims have wordings for single items too.
ALONE = ("status", "storage", "dosage", "prognosis", "prevention")


def reader(lang: Lang, name: str, item: str = "") -> ClaimReader:
    return next(found for found in claim_readers(lang) if (found.name, found.item) == (name, item))


def test_a_longer_word_is_not_the_shorter_one_inside_it() -> None:
    assert reader("zh", "prescription").decide({"status": "处方药"}) == (True, ["status"])
    assert reader("zh", "prescription").decide({"status": "非处方药"}) == (False, ["status"])
    assert reader("zh", "prescription").decide({"status": "处方药；乙类OTC"}) is None
    assert reader("zh", "prescription").decide({"status": "外用药品"}) is None


def test_only_what_is_said_of_the_subject_counts() -> None:
    cells = {"contraindications": "儿童禁用", "precautions": "孕妇慎用；请将本品放在儿童不能接触的地方"}
    assert reader("zh", "forbidden", "孕妇").decide(cells) == (False, ["precautions"])
    assert reader("zh", "forbidden", "小孩").decide(cells) == (True, ["contraindications"])
    assert reader("zh", "forbidden", "老人").decide(cells) is None
    assert (
        reader("zh", "forbidden", "孕妇").decide({"contraindications": "孕妇禁用", "precautions": "孕妇慎用"}) is None
    )


def test_silence_is_a_no_only_where_the_question_asks_what_is_written() -> None:
    assert reader("zh", "dark").decide({"storage": "密封"}) == (False, ["storage"])
    assert reader("zh", "fridge").decide({"storage": "密封"}) is None
    assert reader("zh", "alcohol").decide({"drug_interactions": "华法林"}) is None


def test_the_opposite_question_has_the_opposite_answer() -> None:
    catching = [found for found in claim_readers("zh") if found.name == "catching"]
    assert [found.decide({"cause": "病毒；飞沫传播"}) for found in catching] == [(True, ["cause"]), (False, ["cause"])]
    assert [found.decide({"cause": "肥胖"}) for found in catching] == [(False, ["cause"]), (True, ["cause"])]


@pytest.mark.parametrize(
    ("lang", "name", "item", "column", "text"),
    [
        ("en", "listed", "weak kidneys", "contraindications", "untreated adrenal insufficiency"),
        ("en", "diet", "", "drug_interactions", "lithium; colestyramine"),
        ("en", "warned", "low mood", "contraindications", "hypersensitivity to tricyclic antidepressants"),
        ("zh", "listed", "肾功能不好", "contraindications", "对肾上腺皮质激素过敏者禁用"),
        ("zh", "warned", "心脏有毛病的人", "precautions", "用量须小心"),
        ("zh", "warned", "小孩子", "precautions", "65岁以上者慎用"),
    ],
)
def test_a_word_inside_another_one_says_nothing(lang: Lang, name: str, item: str, column: str, text: str) -> None:
    assert reader(lang, name, item).decide({column: text}) in (None, (False, [column]))


@pytest.mark.parametrize(
    ("lang", "name", "item", "column", "text"),
    [
        ("en", "by_itself", "", "prognosis", "not dangerous; often lasts for years"),
        ("en", "good_outlook", "", "prognosis", "often improves with age; rarely life-threatening"),
        ("en", "forbidden", "a diabetic", "contraindications", "pregnancy; aliskiren use in diabetes"),
        ("en", "forbidden_ill", "asthma", "contraindications", "status asthmaticus (primary treatment)"),
        ("en", "catching", "", "cause", "imbalance of neurotransmitters"),
        ("zh", "cured", "", "prognosis", "短期者多可缓解"),
        ("zh", "catching", "", "epidemiology", "性传播；母婴传播；血液传播"),
        ("zh", "injured", "", "cause", "急性心肌坏死或损伤"),
        ("zh", "forbidden", "老人", "precautions", "老年人、孕妇使用安全性：孕妇禁服"),
        ("zh", "surgery", "", "treatment", "阿司匹林；经皮冠状动脉介入"),
        ("zh", "driving", "", "precautions", "本品不会影响驾驶和机械操作能力"),
        ("zh", "checkups", "", "precautions", "无需定期复查"),
        ("zh", "drowsy", "", "precautions", "驾驶员慎用"),
        ("en", "drowsy", "", "precautions", "caution when driving"),
        ("en", "careful", "driving", "precautions", "does not affect driving"),
        ("zh", "women", "", "epidemiology", "孕妇；糖尿病病人"),
        ("zh", "stopping", "", "adverse_reactions", "皮疹；停药反应"),
    ],
)
def test_what_says_only_a_part_of_it_decides_nothing(lang: Lang, name: str, item: str, column: str, text: str) -> None:
    assert reader(lang, name, item).decide({column: text}) is None


def test_a_cell_that_lists_several_forms_has_each_of_them() -> None:
    assert reader("zh", "injection").decide({"form": "1.片剂：10mg；2.注射剂：2ml"}) == (True, ["form"])


@pytest.mark.parametrize("lang", LANGS)
def test_each_column_is_asked_in_many_ways_and_no_wording_of_test_is_trained_on(lang: Lang) -> None:
    ways: Counter[str] = Counter()
    train, test = set(), set()
    for claims in banks(lang).claims.values():
        for claim in claims.values():
            trained, held_out = _wordings(claim)
            ways[claim.columns[0]] += len(trained) + len(held_out)
            train |= trained
            test |= held_out
    assert not train & test
    assert {column: count for column in ALONE if (count := ways[column]) < MIN_WORDINGS[lang]} == {}


def _asks(claim: Claim) -> list[Halves[Asks]]:
    return [claim, claim.opposite] if claim.opposite else [claim]


def _wordings(claim: Claim) -> tuple[set[str], set[str]]:
    def plain(half: Half) -> set[str]:
        texts = (text for asks in _asks(claim) for text in (*asks.of(half).named, *asks.of(half).after))
        return {re.sub(r"\W+", " ", text.casefold()) for text in texts}

    return plain("train"), plain("test")


@pytest.mark.parametrize("lang", LANGS)
def test_a_wording_asks_for_one_claim_of_its_columns_and_one_way_round(lang: Lang) -> None:
    readers = {(found.name, found.opposite): found for found in claim_readers(lang)}
    for (name, opposite), one in readers.items():
        asks = one.claim.opposite if opposite and one.claim.opposite else one.claim
        for half in (asks.train, asks.test):
            for text in (*half.named, *half.after):
                assert ("{item}" in text) == bool(one.item), text
                asked = text.format(name="X", item="Y", they="Z", them="Z", their="Z")
                found = [way for way, r in readers.items() if r.claim.columns == one.claim.columns and r.worded(asked)]
                assert found == [(name, opposite)], text


@pytest.mark.parametrize("lang", LANGS)
def test_no_words_of_test_for_the_rows_of_a_claim_are_trained_on(lang: Lang) -> None:
    for claims in banks(lang).claims.values():
        for said in (claim.rows for claim in claims.values() if claim.rows):
            train, test = ({*said.holds.of(half), *said.lacks.of(half)} for half in get_args(Half))
            assert train and test and not train & test


@pytest.mark.slow
def test_no_column_has_one_answer_only_or_most_of_the_questions(sample: tuple[Path, Made]) -> None:
    _, made = sample
    asked = [question for question in everything(made) if question.task_type == "yes_no"]
    words = wording(asked[0].lang)
    answers = {
        answer: Counter(q.evidence[0].field for q in asked if q.answer == answer) for answer in (words.yes, words.no)
    }
    both = answers[words.yes] + answers[words.no]
    assert {"status", "storage", "dosage", "form", "prognosis", "prevention", "precautions"} <= set(both)
    assert max(both.values()) < 0.25 * len(asked)
    for column, count in both.items():
        assert min(found[column] for found in answers.values()) > 0.25 * count, column


@pytest.mark.slow
def test_some_statements_read_both_columns_that_people_take_for_each_other(sample: tuple[Path, Made]) -> None:
    _, made = sample
    one_row = {"drug_field", "disease_field", "part_of_field", "yes_no"}
    asked = [question for question in everything(made) if question.task_type in one_row]
    both = [question for question in asked if re.match(r"SELECT \w+, \w+ FROM", question.statements[-1])]
    assert 0.05 < len(both) / len(asked) < 0.3
