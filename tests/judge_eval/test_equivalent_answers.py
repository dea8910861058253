"""A harmless transformation says the same, a false one does not; the judge `facts` pays accordingly for any facts."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sql_agent.judge_eval import adversarial_answers
from sql_agent.judge_eval.adversarial_answers import FALSE
from sql_agent.judge_eval.answers import generate
from sql_agent.judge_eval.equivalent_answers import HARMLESS, Subject, Transformation, wordings
from sql_agent.judge_eval.evaluation import grade
from sql_agent.reward.judges.facts_judge import FactsJudge
from sql_agent.schemas import Lang, Question
from sql_agent.tasks.medical.medical_task import TASK
from tests.support.examples import REFUSAL, example, unanswerable

_OF_THE_JUDGE = {"and", "not", "no"}  # words that part items, or that other words hold
_ENGLISH = st.from_regex(r"[b-df-hj-np-tv-z][aeiou][b-df-hj-np-tv-z]{1,2}[aeiou]{0,2}[a-z]?", fullmatch=True)
_ENGLISH_FACT = st.lists(_ENGLISH.filter(lambda word: word not in _OF_THE_JUDGE), min_size=1, max_size=3).map(" ".join)
_CHINESE_FACT = st.text("头痛恶心呕吐肝功能减退皮疹低热咳嗽胸闷乏力贫血", min_size=2, max_size=5)


def lists_of(facts: st.SearchStrategy[str]) -> st.SearchStrategy[tuple[list[str], list[str]]]:
    """Two lists of facts, none of which is in the other list or part of another fact."""

    def apart(both: list[str]) -> bool:
        return not any(a != b and a in b for a in both for b in both)

    several = st.lists(facts, min_size=2, max_size=9, unique=True).filter(apart)
    return several.flatmap(lambda both: st.integers(1, len(both) - 1).map(lambda at: (both[:at], both[at:])))


def check_payment(
    facts: list[str], others: list[str], names: tuple[str, str], lang: Lang, enough: int | None = None
) -> None:
    examples = [example(names[0], facts, lang, enough), example(names[1], others, lang), unanswerable("none", lang)]
    for g in asyncio.run(grade(FactsJudge(TASK.words), generate(examples, REFUSAL))):
        shown = f"{g.kind}: {g.answer!r} for {g.question_id!r}"
        assert g.score is not None, shown
        if g.set == "harmless":
            assert g.score == 1.0, shown
        elif g.set == "false":
            assert g.score <= 0.1, shown


@given(lists_of(_ENGLISH_FACT), st.integers(0, 999))
@settings(max_examples=30)  # each is graded in all its forms
def test_english_facts_are_paid_in_any_form_and_never_when_they_are_made_false(
    lists: tuple[list[str], list[str]], number: int
) -> None:
    check_payment(*lists, (f"Xyrodil {number}", f"Quavol {number}"), "en")


@given(lists_of(_CHINESE_FACT), st.integers(0, 999))
@settings(max_examples=30)  # each is graded in all its forms
def test_chinese_facts_are_paid_in_any_form_and_never_when_they_are_made_false(
    lists: tuple[list[str], list[str]], number: int
) -> None:
    check_payment(*lists, (f"甲药{number}", f"乙药{number}"), "zh")


@pytest.mark.parametrize(("lang", "right", "wrong"), [("en", "yes", "no"), ("zh", "是", "否")])
def test_yes_and_no_are_paid_in_any_form_and_never_when_they_are_made_false(lang: Lang, right: str, wrong: str) -> None:
    for number in range(10):  # each draws other words
        for answer, other in ((right, wrong), (wrong, right)):
            check_payment([answer], [other], (f"Xyrodil {number}", f"Quavol {number}"), lang)


@given(lists_of(_ENGLISH_FACT), st.data())
@settings(max_examples=30)  # each is graded in all its forms
def test_where_some_facts_are_enough_these_are_paid_in_any_form_and_made_false(
    lists: tuple[list[str], list[str]], data: st.DataObject
) -> None:
    facts, others = lists
    check_payment(facts, others, ("Xyrodil", "Quavol"), "en", enough=data.draw(st.integers(1, len(facts))))


def subject(answer: str, other: str = "elsewhere; nowhere", *, question: str = "What?", lang: Lang = "en") -> Subject:
    sql = "SELECT storage FROM drugs_info WHERE med_name = 'Aspirin'"
    return Subject(
        Question(id="q", question=question, answer=answer, lang=lang),
        Question(id="r", question="And?", answer=other, lang=lang, sql=sql),
        REFUSAL[lang],
    )


def test_the_name_that_only_the_sql_of_two_hops_holds_is_not_another_owner() -> None:
    for name in ("Aspirin", "aspirin"):
        sql = f"SELECT form FROM drugs_info WHERE med_name LIKE '{name}'"
        hops = subject("x; y").question.model_copy(update={"sql": sql})
        assert adversarial_answers.another_owner(replace(subject("x; y"), question=hops), Random(0)) is None


@pytest.mark.parametrize(
    ("transformation", "answer", "expected"),
    [
        (adversarial_answers.owners_swapped, "A: x, y; B: z", "B: x, y; A: z"),
        (adversarial_answers.all_items_for_each, "A: x, y; B: z", "A: x, y, z; B: x, y, z"),
        (adversarial_answers.another_owner, "x; y", "Aspirin: x, y"),
        (adversarial_answers.unit_changed, "500 mg daily", "500 g daily"),
        (adversarial_answers.refused, "x", REFUSAL["en"]),
        (adversarial_answers.values_of_another, "x", "elsewhere; nowhere"),
        (adversarial_answers.values_of_another_appended, "x", "x; elsewhere; nowhere"),
        (adversarial_answers.repeated, "x", None),
        (adversarial_answers.flipped, "yes", "no"),
        (adversarial_answers.flipped, "No", "yes"),
    ],
)
def test_what_a_false_transformation_makes(transformation: Transformation, answer: str, expected: str | None) -> None:
    made = transformation(subject(answer), Random(0))
    assert made is not None
    assert made == expected if expected else made.count(answer) == 10


@pytest.mark.parametrize(
    ("transformation", "answer"),
    [
        (adversarial_answers.owners_swapped, "x; y"),
        (adversarial_answers.owners_swapped, "A: x; B: x, y"),  # x is right for both
        (adversarial_answers.one_fact_negated, "x"),
        (adversarial_answers.flipped, "x"),
        (adversarial_answers.yes_and_no, "yes; x"),
        (adversarial_answers.number_changed, "x"),
        (adversarial_answers.number_changed, "0"),
        (adversarial_answers.number_widened, "1. first of a list"),
        (adversarial_answers.unit_changed, "0"),
        (adversarial_answers.refused, REFUSAL["en"]),
        (adversarial_answers.word_salad, "dry mouth; nausea"),
    ],
)
def test_where_the_result_could_be_right_there_is_none(transformation: Transformation, answer: str) -> None:
    assert [transformation(subject(answer), Random(seed)) for seed in range(20)] == [None] * 20


@pytest.mark.parametrize(
    ("question", "expected"),
    [
        ("How many drugs name it?", "3 diseases"),
        ("How many diseases name it?", "3 drugs"),
        ("How many drugs are for the disease?", None),
        ("How many are there?", None),
        ("Drugs for Crohn's disease, total?", None),
    ],
)
def test_a_count_of_another_kind_is_false_where_the_question_names_a_kind(question: str, expected: str | None) -> None:
    assert adversarial_answers.another_kind_counted(subject("3", question=question), Random(0)) == expected


def test_every_transformation_has_its_own_name_and_every_language_has_all_words() -> None:
    functions = (*HARMLESS, *FALSE)
    assert len({function.__name__ for function in functions}) == len(functions)
    assert set(wordings()) == {"en", "zh"}
    for words in wordings().values():
        assert all(words.model_dump().values())
        assert all("{}" in frame for frame in (*words.statements, *words.facts, *words.marks, *words.restrictions))
        assert all("{}" in frame and "{other}" in frame for frame in words.choices)
