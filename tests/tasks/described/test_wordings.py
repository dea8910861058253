"""What a person can add to a description: claims, parts of lists, everyday words; wordings that only test uses."""

from __future__ import annotations

import random
import re
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from sql_agent.config.settings import load_settings
from sql_agent.schemas import Question
from sql_agent.tasks.described.claims import decide
from sql_agent.tasks.described.conditions import sentences_by_age
from sql_agent.tasks.described.described_task import described_task
from sql_agent.tasks.described.description import Claim, as_toml, read_description
from sql_agent.tasks.described.generate import make_question_files
from sql_agent.tasks.described.words import Wording, half
from sql_agent.tasks.described.yes_no_questions import is_apart

_PLANTS = """\
lang = "en"
database = "plants.db"
[unknown_tables]
gardener = ["Which gardener works today?"]
[said]
aphids = ["greenfly"]
[tables.plant]
label = "plant"
plural = "plants"
name = "plant"
unknown = ["What does {name} cost?"]
[tables.plant.columns.plant]
kind = "name"
label = "name"
[tables.plant.columns.pests]
kind = "list"
label = "pest"
plural = "pests"
separator = "; "
near = ["care"]
ask = ["What eats {name}?"]
confirm = ["Do {value} eat {name}?"]
find = ["What is eaten by {value}?"]
[tables.plant.columns.pests.then]
care = ["How are plants that {value} eat looked after?"]
[tables.plant.columns.pests.parts.slow]
ask = ["Which slow animals eat {name}?"]
words = ["snail", "slug"]
[tables.plant.columns.care]
kind = "list"
label = "care"
separator = "; "
ask = ["How do I look after {name}?"]
[tables.plant.claims.sun]
columns = ["care"]
ask = ["Does {name} need sun?"]
ask_not = ["Is {name} happy in the shade?"]
yes = ["sun"]
no = ["shade"]
[tables.plant.other_names]
"Bellis perennis" = ["daisy"]
"Rosa montana" = ["briar"]
"Quercus alpina" = ["oak"]
"Prunus palustris" = ["plum"]
"""
_PILLS = """
lang = "en"
database = "pills.db"
[tables.pill]
label = "pill"
plural = "pills"
name = "pill"
[tables.pill.columns.pill]
kind = "name"
label = "pill"
[tables.pill.columns.care]
kind = "text"
label = "care"
[tables.pill.columns.dose]
kind = "text"
label = "dose"
[tables.pill.columns.dose.parts.opened]
ask = ["How long is {name} good after opening?"]
words = ["opened"]
[tables.pill.columns.care.parts.opened]
ask = ["How is {name} kept once opened?"]
words = ["opened"]
[tables.pill.claims.drink]
columns = ["care", "dose"]
ask = ["Does {name} forbid beer?"]
ask_not = ["May I drink beer with {name}?"]
yes = ["no beer"]
silent = true
[tables.pill.claims.glass]
columns = ["care"]
ask = ["Is {name} in a glass?"]
yes = ["in glass"]
topic = ["glass"]
"""
_PESTS = ("aphids", "snails", "slugs", "mites", "weevils", "moths")
_FIRST = ("Bellis", "Salvia", "Acer", "Rosa", "Quercus", "Iris", "Viola", "Malus", "Prunus", "Tilia")
_SECOND = ("perennis", "sylvestris", "montana", "officinalis", "alpina", "palustris")


@pytest.fixture(scope="module")
def plants(tmp_path_factory: pytest.TempPathFactory) -> list[Question]:
    """All questions about sixty plants, by the wordings of `_PLANTS`."""
    folder, chosen = tmp_path_factory.mktemp("plants"), random.Random(0)
    rows = [
        (f"{first} {second}", "; ".join(chosen.sample(_PESTS, 3)), f"water; {chosen.choice(('sun', 'shade'))}")
        for first in _FIRST
        for second in _SECOND
    ]
    cells = [(name, pests, None if number % 7 == 0 else care) for number, (name, pests, care) in enumerate(rows, 1)]
    with closing(sqlite3.connect(folder / "plants.db")) as connection:
        connection.execute("CREATE TABLE plant (id INTEGER PRIMARY KEY, plant TEXT, pests TEXT, care TEXT)")
        connection.executemany("INSERT INTO plant (plant, pests, care) VALUES (?, ?, ?)", cells)
        connection.commit()
    file = folder / "plants.toml"
    file.write_text(_PLANTS, encoding="utf-8")
    task = described_task(file)
    source = task.database_source(load_settings())
    made = make_question_files(read_description(file), source, task, folder / "questions", per_type=60)
    return [question for questions in made.values() for question in questions]


def test_the_wordings_of_a_description_are_asked(plants: list[Question]) -> None:
    texts = {question.question.partition(" ")[0]: question for question in plants}
    assert {"What", "Do", "Which", "Does", "Is", "How"} <= set(texts)
    slow = [q for q in plants if q.question.startswith("Which slow animals")]
    assert slow and {fact for q in slow for fact in q.answer.split("; ")} <= {"snails", "slugs"}
    sun = [q for q in plants if q.question.startswith("Does ") and q.question.endswith(" need sun?")]
    assert {q.answer for q in sun} == {"yes", "no"}
    assert any(q.question.endswith("Which gardener works today?") and q.task_type == "unanswerable" for q in plants)
    assert any(q.question.startswith("What does ") and q.task_type == "unanswerable" for q in plants)


def test_yes_or_no_is_also_asked_in_an_everyday_word_that_the_cell_does_not_have(plants: list[Question]) -> None:
    asked = [q for q in plants if q.task_type == "yes_no" and "greenfly" in q.question]
    assert asked and all(("aphids" in q.evidence[0].quote) == (q.answer == "yes") for q in asked)


def test_an_everyday_name_leads_to_the_row_by_the_hint(plants: list[Question]) -> None:
    names = {"daisy": "Bellis perennis", "briar": "Rosa montana", "oak": "Quercus alpina", "plum": "Prunus palustris"}
    named = [(name, question) for name in names for question in plants if re.search(rf"\b{name}\b", question.question)]
    assert named
    for name, question in named:
        first, *_, last = question.statements
        assert f"'{name}'" in first and f"'{names[name]}'" in last


def test_a_third_of_the_questions_about_a_cell_show_how_to_go_on(plants: list[Question]) -> None:
    lookups = [q for q in plants if q.task_type in {"lookup", "yes_no", "part"}]
    detours = [q for q in lookups if len(q.statements) > 1]
    assert 0.2 < len(detours) / len(lookups) < 0.6
    assert all(len(set(q.statements)) == len(q.statements) for q in plants), "no statement is run twice"


def test_a_description_is_written_as_it_is_read(tmp_path: Path) -> None:
    file = tmp_path / "plants.toml"
    file.write_text(_PLANTS, encoding="utf-8")
    description = read_description(file)
    file.write_text(as_toml(description), encoding="utf-8")
    assert read_description(file) == description


def test_the_last_fifth_of_the_wordings_is_for_test_only() -> None:
    wordings = tuple(f"{{name}} {number}?" for number in range(10))
    assert set(half(wordings, held_out=True)) == set(wordings[8:])
    assert set(half(wordings, held_out=False)) == set(wordings[:8])
    assert half(wordings[:4], held_out=True) == half(wordings[:4], held_out=False) == wordings[:4]
    wording, chosen = Wording(wordings, {"name": "{other}"}, {}), random.Random(0)
    said = {wording.say(chosen, held_out=True) for _ in range(50)}
    assert said == {"{other} 8?", "{other} 9?"}, "the braces of a name are no slot"


CLAIM = Claim(
    columns=("status",),
    ask=("Must {item} avoid {name}?",),
    about={"children": ("child",), "adults": ("adult",)},
    yes=("must not", "prescription"),
    no=("with care", "non-prescription"),
    unclear=("perhaps",),
    ignored=("childproof",),
)


@pytest.mark.parametrize(
    ("cell", "said"),
    [
        ("Children must not take it. Adults with care.", True),
        ("children with care", False),
        ("adults must not take it", None),
        ("perhaps children must not take it", None),
        ("childproof cap; adults with care", None),
        ("non-prescription for children", False),
        ("", None),
    ],
)
def test_words_in_the_sentences_about_somebody_decide_a_claim(cell: str, said: bool | None) -> None:
    assert decide(CLAIM, [cell.lower()], "children") is said


def test_silence_means_no_only_where_the_cell_speaks_of_the_topic() -> None:
    claim = CLAIM.model_copy(update={"silent": True, "topic": ("eat",)})
    assert decide(claim, ["do not eat fish"], "children") is False
    assert decide(claim, ["keep dry"], "children") is None


def test_a_rare_claim_is_asked_with_both_answers_and_all_its_columns_read_and_one_nowhere_mentioned_is_refused(
    tmp_path: Path,
) -> None:
    names = [f"{first} {last} {third}" for first in _FIRST for last in _SECOND for third in _SECOND]
    cells = [
        (name, "no beer" if number % 12 == 0 else "keep dry", "1 a day. Opened: 9 days.")
        for number, name in enumerate(names)
    ]
    with closing(sqlite3.connect(tmp_path / "pills.db")) as connection:
        connection.execute("CREATE TABLE pill (id INTEGER PRIMARY KEY, pill TEXT, care TEXT, dose TEXT)")
        connection.executemany("INSERT INTO pill (pill, care, dose) VALUES (?, ?, ?)", cells)
        connection.commit()
    file = tmp_path / "pills.toml"
    file.write_text(_PILLS, encoding="utf-8")
    task = described_task(file)
    made = make_question_files(
        read_description(file), task.database_source(load_settings()), task, tmp_path / "out", per_type=20
    )
    questions = [question for each in made.values() for question in each]
    may = [q for q in questions if "May I drink" in q.question]
    forbidden = [q for q in may if q.answer == "no"]
    assert may and 0.3 < len(forbidden) / len(may) < 0.7, "a twelfth of the cells forbid it"
    assert {part for q in may for part in ("care", "dose") if part not in q.statements[-1]} == set()
    assert {item.field for q in forbidden for item in q.evidence} == {"care"}
    opened = [q for q in questions if q.task_type == "part"]
    is_beside = all(q.answer == "Opened: 9 days" and "care" in q.statements[-1] for q in opened)
    assert opened and is_beside, "the question does not tell which of two columns has the answer"
    glass = [q for q in questions if "glass" in q.question]
    assert glass and all(q.task_type == "unanswerable" for q in glass)


def test_the_dose_for_an_age_is_the_sentence_whose_span_holds_it() -> None:
    doses = ["成人一次10ml", "3～6岁，一次5ml", "6岁以上，一次8ml", "6个月～3岁，一次2ml"]
    found = sentences_by_age(doses)
    assert (found["2岁"], found["4岁半"], found["9岁"]) == (doses[3], doses[1], doses[2])
    assert "3岁" not in found and "6岁" not in found and found["8个月"] == doses[3]
    assert "8个月" not in sentences_by_age([*doses, "连用2个月"])
    assert sentences_by_age(["小于3岁，一次2ml"]) == sentences_by_age(["一岁半丸，2岁以上1丸"]) == {}


def test_a_word_is_apart_from_a_cell_that_says_nothing_like_it() -> None:
    assert is_apart("头晕", "恶心；呕吐")
    assert not is_apart("头晕", "头晕目眩")
    assert not is_apart("持续头痛", "偏头痛")
    assert is_apart("severe rash", "nausea")
    assert not is_apart("severe rash", "mild rash")
