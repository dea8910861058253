"""`correct`: what a person would accept in whatever form, and what not."""

from __future__ import annotations

import asyncio

import pytest

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
) -> bool:
    records = (("Aspirin", "tablet; syrup"), ("Ibuprofen", "capsule"))
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


def test_one_of_the_facts_that_are_enough_is_accepted() -> None:
    assert correct("tablet; syrup", "It comes as a syrup.", enough=1)


@pytest.mark.parametrize(
    ("answer", "accepted"),
    [("I found nothing about Aspirin in the database.", True), ("There is no information about this drug.", True),
     ("It comes as a capsule.", False)],
)  # fmt: skip
def test_a_refusal_denies_and_names_no_value(answer: str, accepted: bool) -> None:
    refusal = "The database does not hold this information."
    assert correct(refusal, answer, evidence=()) is accepted
