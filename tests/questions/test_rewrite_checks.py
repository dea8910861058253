"""A rewritten question holds what is asked about, gives nothing away, and is no wording of the other half."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sql_agent.questions.rewrite_checks import Problem, UsedTexts, cheap_problem, kept_texts
from sql_agent.reward.judges.items import Reader
from sql_agent.schemas import Evidence, Question
from sql_agent.tasks.medical.medical_task import TASK

NAMES = ("Iron", "Ibuprofen", "Aspirin", "Gout")


def names_in(text: str) -> list[str]:
    return [name for name in NAMES if name.casefold() in text.casefold()]


SIDE_EFFECTS = Question(
    id="1",
    question="doc gave me ibuprofin, what can it do to my stomach?",
    answer="nausea; stomach pain (rare)",
    sql="SELECT adverse_reactions FROM drugs_info WHERE med_name = 'ibuprofin'; "
    "SELECT adverse_reactions FROM drugs_info WHERE med_name = 'Ibuprofen'",
    evidence=(Evidence(table="drugs_info", row_id=1, field="adverse_reactions", quote="nausea"),),
)
COUNT = Question(
    id="2",
    question="How many drugs list “headache” among the side effects?",
    answer="12",
    sql="SELECT COUNT(*) FROM drugs_info WHERE adverse_reactions LIKE '%headache%'",
)
YES_NO = Question(
    id="3",
    question="Is nausea a side effect of Drug 1 at 1.5 mg?",
    answer="yes",
    sql="SELECT adverse_reactions FROM drugs_info WHERE med_name = 'Drug 1'",
    evidence=(Evidence(table="drugs_info", row_id=1, field="adverse_reactions", quote="nausea; stomach pain; fever"),),
)


def problem(text: str, question: Question = SIDE_EFFECTS) -> str | None:
    found = cheap_problem(question, text, Reader(TASK.words[question.lang]), names_in)
    return found.reason if found else None


def test_what_the_sql_looks_for_is_kept_as_the_question_writes_it() -> None:
    assert kept_texts(SIDE_EFFECTS) == ("ibuprofin",), "the database's own spelling does not stand in the question"
    assert kept_texts(COUNT) == ("headache",)
    assert kept_texts(YES_NO) == ("Drug 1", "nausea", "1.5")


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("My stomach is touchy. Is Ibuprofin bad for it, and how?", None),
        ("In this environment, ibuprofin: how does my stomach take it?", None),
        ("Doc gave me ibuprofin, what can it do to my stomach?", "unchanged"),
        ("Doc gave me ibuprofen, what can it do to my stomach?", "name"),
        ("I take ibuprofin, is it nausea that my stomach gets?", "answer shown"),
        ("I take ibuprofin and aspirin, what about my stomach?", "other name"),
        ("医生开了 ibuprofin，对胃有什么影响？", "language"),
        ("I take ibuprofin.\nWhat about my stomach?", "length"),
        ("I take ibuprofin. " + "It has been a long day. " * 20, "length"),
    ],
)
def test_a_text_is_refused_with_its_reason(text: str, reason: str | None) -> None:
    assert problem(text) == reason


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("Drug 1 at 1.5 mg, can it bring on nausea?", None),
        ("Drug 1 at 1.5 mg, can it bring on vomiting?", "name"),  # the claim
        ("Drug 1 at 1.5 mg, can it bring on nausea or fever?", "answer shown"),  # another claim that the cell decides
        ("Drug 12 at 1.5 mg, can it bring on nausea?", "name"),
        ("Drug 1 at 1 mg, can it bring on nausea?", "name"),
        ("Drug 1 at 11.5 mg, can it bring on nausea?", "name"),
    ],
)
def test_claims_and_numbers_stay_as_they_are(text: str, reason: str | None) -> None:
    assert problem(text, YES_NO) == reason


def test_a_no_does_not_become_a_yes() -> None:
    asked = YES_NO.model_copy(update={"question": "Is vomiting a side effect of Drug 1?", "answer": "no"})
    assert problem("Drug 1: any vomiting from it?", asked) is None
    assert problem("Drug 1: any fever from it?", asked) == "answer shown"


def test_a_number_is_given_away_by_itself_only() -> None:
    assert problem("headache, are there 12 drugs that do that?", COUNT) == "answer shown"
    assert problem("headache since 1200 hours, how many drugs do that?", COUNT) is None


@given(st.text(max_size=60))
def test_no_text_around_it_makes_up_for_a_missing_name(text: str) -> None:
    assert problem(f"what about {text}?") is not None or "ibuprofin" in text.casefold()


def test_no_text_comes_twice_and_no_wording_in_both_halves() -> None:
    used = UsedTexts(["What about Gout?"])
    taken = Problem("twice", "another question has this text")
    assert used.problem("what about gout?", ("Gout",), "train") == taken
    used.add("So, Iron: what for?", ("Iron",), "train")
    assert used.problem("So, Aspirin: what for?", ("Aspirin",), "train") is None
    other = used.problem("So, Aspirin: what for?", ("Aspirin",), "test")
    assert other is not None
    assert other.reason == "shared wording"
    assert used.problem("Aspirin, what for?", ("Aspirin",), "test") is None
