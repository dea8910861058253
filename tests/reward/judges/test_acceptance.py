"""`correct`: what a person would accept in whatever form, and what not."""

from __future__ import annotations

import asyncio

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sql_agent.reward import JudgeCase
from sql_agent.reward.judges.facts_judge import FactsJudge
from sql_agent.schemas import Evidence, Lang, QueryAnswer, QueryCall, Question
from sql_agent.tasks.medical.medical_task import TASK

FORMS = tuple(Evidence(table="drugs_info", row_id=1, field="form", quote=quote) for quote in ("tablet", "syrup"))
CELL = (Evidence(table="drugs_info", row_id=1, field="form", quote="tablet; syrup"),)


def correct(
    reference: str,
    answer: str,
    *,
    evidence: tuple[Evidence, ...] = FORMS,
    question: str = "Which forms does Aspirin have?",
    lang: Lang = "en",
    enough: int | None = None,
    read: bool = True,
    cells: tuple[str, str] = ("tablet; syrup", "capsule"),
    names: tuple[str, str] = ("Aspirin", "Ibuprofen"),
) -> bool:
    records = tuple(zip(names, cells, strict=True))
    rows = QueryAnswer(status="ok", columns=("med_name", "form"), records=records, count=2, from_tables=True)
    call = QueryCall(
        sql="SELECT med_name, form FROM drugs_info WHERE med_name LIKE 'Aspirin'", answer=rows, seconds=0.0
    )
    asked = Question(id="q", question=question, answer=reference, lang=lang, evidence=evidence, enough=enough)
    case = JudgeCase(
        question=asked,
        answer=answer,
        calls=(call,),
        evidence_read=evidence if read else (),
        row_names=(("Aspirin",),) * len(evidence),
    )
    return asyncio.run(FactsJudge(TASK.words).grade(case)).criteria["correct"] == 1.0


@pytest.mark.parametrize(
    "answer",
    [
        "tablet; syrup",
        "Aspirin comes as a tablet and as a syrup.",
        "It is available as tablets, and syrup",
        "Aspirin: tablet, syrup",
        "The forms are: 1. Tablet 2. Syrup.",
        "**Syrup** and **tablet** are the forms of Aspirin.",
    ],
)
def test_the_facts_are_accepted_in_any_sentence(answer: str) -> None:
    assert correct("tablet; syrup", answer)


@pytest.mark.parametrize(
    "answer",
    [
        "tablet",
        "Aspirin comes as a tablet, a syrup and a capsule.",
        "Aspirin is not a tablet but a syrup.",
        "tablet; syrup; headache",
        "Tablet and syrup of 500 mg",
        "tabletting and syrups",
        "The database does not hold this information.",
        "",
    ],
)
def test_what_is_missing_denied_or_beside_the_facts_is_not_accepted(answer: str) -> None:
    assert not correct("tablet; syrup", answer)


def test_what_was_not_read_is_not_accepted() -> None:
    assert not correct("tablet; syrup", "Aspirin comes as a tablet and as a syrup.", read=False)


@pytest.mark.parametrize(
    ("reference", "answer", "accepted"),
    [
        ("no", "No, there is no patch.", True),
        ("no", "Yes", False),
        ("no", "Nothing", False),
        ("yes", "Yes, as a syrup.", True),
        ("2", "There are 2 drugs.", True),
        ("2", "two", True),
        ("2", "2 or 3", False),
        ("2", "12", False),
    ],
)
def test_yes_no_and_numbers_are_accepted_in_a_sentence(reference: str, answer: str, accepted: bool) -> None:
    assert correct(reference, answer, evidence=CELL, question="Is there a patch?") is accepted


def test_each_name_needs_its_own_facts() -> None:
    question = "Forms of Aspirin and of Ibuprofen?"
    reference = "Aspirin: tablet, syrup; Ibuprofen: capsule"
    assert correct(reference, "Aspirin is a tablet or syrup, Ibuprofen a capsule.", question=question)
    assert not correct(reference, "Ibuprofen is a tablet or syrup, Aspirin a capsule.", question=question)


@pytest.mark.parametrize(
    ("names", "answer", "accepted"),
    [
        (("Aspirin", "Ibuprofen"), "Aspirin", True),
        (("Aspirin", "Ibuprofen"), "Aspirin and Ibuprofen are syrups.", False),
        (("心肌炎", "病毒性心肌炎"), "是心肌炎。", True),
        (("心肌炎", "病毒性心肌炎"), "病毒性心肌炎和心肌炎都有胸闷。", False),
        (("病毒性心肌炎", "心肌炎"), "病毒性心肌炎", True),
        (("病毒性心肌炎", "心肌炎"), "病毒性心肌炎和心肌炎都有胸闷。", False),
    ],
)
def test_where_a_name_is_asked_for_the_name_of_another_row_is_not_accepted_beside_it(
    names: tuple[str, str], answer: str, accepted: bool
) -> None:
    assert named(names, answer, "Which one is a syrup?" if answer.isascii() else "哪种有胸闷？") is accepted


@pytest.mark.parametrize(
    ("names", "answer", "accepted"),
    [
        (("Aspirin", "Ibuprofen"), "It is Aspirin, Ibuprofen has none.", True),
        (("Aspirin", "Ibuprofen"), "Aspirin; Ibuprofen", False),
        (("心肌炎", "病毒性心肌炎"), "是心肌炎，不是病毒性心肌炎。", True),
        (("心肌炎", "病毒性心肌炎"), "病毒性心肌炎；心肌炎", False),
        (("病毒性心肌炎", "心肌炎"), "心肌炎、病毒性心肌炎", False),
    ],
)
def test_a_name_that_the_question_has_may_be_said_but_not_listed(
    names: tuple[str, str], answer: str, accepted: bool
) -> None:
    assert named(names, answer, f"{names[0]} or {names[1]}, which one?") is accepted


def named(names: tuple[str, str], answer: str, question: str) -> bool:
    lang: Lang = "en" if answer.isascii() else "zh"
    return correct(names[0], answer, evidence=CELL, question=question, names=names, lang=lang)


def accepts(reference: str, answer: str, question: str) -> bool:
    cell = (Evidence(table="drugs_info", row_id=1, field="dosage", quote=reference),)
    return correct(reference, answer, evidence=cell, question=question, lang="en" if question.isascii() else "zh")


@pytest.mark.parametrize(
    ("reference", "answer"),
    [
        ("每次1～2滴，每天2～4次", "1～2滴；每天2～4次"),
        ("每次1～2滴，每天2～4次", "每天两到四次，每次1滴至2滴"),
        ("口服，一次4粒，一日3次", "口服4粒，3次/d"),
        ("一次6g，一日2次，四周为一疗程", "说明书写的是每次6克，每日两次，4周为一个疗程。"),
        ("糖衣片一次6～8片；素片一次4～5片", "素片4-5片，糖衣片6-8片"),
        ("2岁以内，一次5ml；3～4岁，一次7.5ml", "3-4岁，7.5毫升；2岁以内，5毫升"),
        ("1-2 drops per dose, 2-4 times a day", "2 to 4 times daily; one to two drops"),
        ("take 2 tablets each time; twice daily", "2 tablets, 2 times a day"),
        ("500 mg per dose, every 6 hours", "500 mg every six hours"),
        ("10 to 15 ml per dose", "The dose is 10-15 ml."),
        ("5 mg per day", "5 mg/day"),
        ("infants, 5 ml; adults, 9 ml", "5 ml for infants and 9 ml for adults"),
    ],
)
def test_an_amount_is_accepted_in_another_form_and_without_what_it_means_anyway(reference: str, answer: str) -> None:
    assert accepts(reference, answer, "What is the dosage?" if reference.isascii() else "用量是多少？")


@pytest.mark.parametrize(
    ("reference", "answer"),
    [
        ("一次4粒，一日3次", "4粒"),
        ("一次4粒，一日3次", "4，一日3次"),
        ("一次4粒，一日3次", "4片，一日3次"),
        ("一次4粒，一日3次", "3-4粒，一日3次"),
        ("一次4粒，一日3次", "3、4粒，一日3次"),
        ("一次4粒，一日3次", "3粒到4粒，一日3次"),
        ("一次4粒，一日3次", "一日4粒，3次"),
        ("一次4粒，一日3次", "每天口服4粒，一日3次"),
        ("一次4粒，一日3次", "总量4粒，一日3次"),
        ("一次4粒，一日3次", "约4粒，一日3次"),
        ("一次4粒，一日3次", "4粒以上，一日3次"),
        ("一次4粒，一日3次", "不是4粒，一日3次"),
        ("一次4粒，一日3次", "4粒，隔日3次"),
        ("一次9g", "9g/kg"),
        ("一次4粒，一日3次", "4粒每天分3次服用"),
        ("一次4粒", "最多每次4粒"),
        ("一次4粒", "4粒半"),
        ("每次0.25g", "每粒0.25g"),
        ("一日1.2g，分3次", "1.2g，一日3次"),
        ("一次不超过8片", "8片"),
        ("小儿一次5ml", "5ml"),
        ("成人一次3～4片；儿童一次1～2片", "成人1～2片；儿童3～4片"),
        ("2岁以内，一次5ml；3～4岁，一次7.5ml", "2岁以内，7.5ml；3～4岁，5ml"),
        ("2 tablets each time, three times daily", "2 tablets daily, three times"),
        ("250 mg per dose", "250 mg per capsule"),
        ("250 mg per dose", "daily dose: 250 mg"),
        ("adults: 2 tablets per dose; children: 1 tablet per dose", "2 tablets; 1 tablet"),
    ],
)
def test_an_amount_with_another_number_unit_scope_or_patient_is_not_accepted(reference: str, answer: str) -> None:
    assert not accepts(reference, answer, "What is the dosage?" if reference.isascii() else "用量是多少？")


@pytest.mark.parametrize(
    ("reference", "answer", "question", "accepted"),
    [
        ("有效期36个月", "36个月", "有效期是多久？", True),
        ("有效期36个月", "36", "有效期是多久？", False),
        ("一日5次", "5次", "一天含服几次？", True),
        ("一日5次", "5次", "一周含服几次？", False),
        ("below 25 °C", "25 °C", "Below what temperature is it stored?", True),
        ("below 25 °C", "above 25 °C", "Is it stored above or below 25 °C?", False),
        ("below 25 °C", "25 °C", "Is it stored above or below 25 °C?", False),
        ("1 in 31,000 people", "1 in 31,000", "One in how many people has it?", True),
        ("1 in 31,000 people", "1 in 31,000", "How common is it?", False),
        ("1 in 31,000 people", "1 in 31", "One in how many people has it?", False),
        ("1 in 1 million", "1 in 1", "How many out of a million get it?", False),
        ("1 in 31,000 people", "1 in 3,100", "One in how many people has it?", False),
        ("headache", "You may get a headache once treatment starts.", "What may it cause?", True),
        ("成人一次3片；儿童一次1片", "3片；1片", "成人和儿童一次各吃几片？", False),
    ],
)
def test_a_figure_need_not_repeat_the_question(reference: str, answer: str, question: str, accepted: bool) -> None:
    assert accepts(reference, answer, question) is accepted


@pytest.mark.parametrize(
    ("answer", "accepted"),
    [("syrup, 5 ml", True), ("5 ml", True), ("syrup, 5 ml, 9 ml", False), ("capsule, 5 ml", False)],
)
def test_the_words_beside_an_amount_in_its_cell_may_be_said(answer: str, accepted: bool) -> None:
    evidence = (Evidence(table="drugs_info", row_id=1, field="form", quote="5 ml"),)
    cells = ("syrup, 5 ml", "capsule, 9 ml")
    assert correct("5 ml", answer, evidence=evidence, cells=cells, question="How much is it?") is accepted


@settings(deadline=None)
@given(st.integers(1, 99), st.integers(1, 99), st.sampled_from(["粒", "ml", "克"]), st.sampled_from(["粒", "mg", "g"]))
def test_no_other_number_or_unit_is_accepted(due: int, said: int, unit: str, other: str) -> None:
    is_same = due == said and (unit == other or (unit, other) == ("克", "g"))
    assert accepts(f"每次{due}{unit}", f"{said}{other}", "用量是多少？") is is_same


def test_one_of_the_facts_that_are_enough_is_accepted() -> None:
    assert correct("tablet; syrup", "It comes as a syrup.", enough=1)


@pytest.mark.parametrize(
    ("answer", "accepted"),
    [("I found nothing about Aspirin in the database.", True), ("There is no information about this drug.", True),
     ("I searched both tables.\nThere is no information about Aspirin.", True), ("It comes as a capsule.", False),
     ("fever; cough; no other side effects", False), ("no other side effects; fever; cough", False)],
)  # fmt: skip
def test_a_refusal_denies_and_names_no_value(answer: str, accepted: bool) -> None:
    refusal = "The database does not hold this information."
    assert correct(refusal, answer, evidence=()) is accepted
