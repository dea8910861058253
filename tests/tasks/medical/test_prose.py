"""Questions about a database whose cells are prose, where the sample's are lists of items."""

from __future__ import annotations

import random
import re
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest
from pydantic import ValidationError

from sql_agent.schemas import Question
from sql_agent.tasks.described.catalog import Catalog
from sql_agent.tasks.described.description import Part, fitted
from sql_agent.tasks.described.table_rows import read_database
from sql_agent.tasks.described.unanswerable_questions import UnanswerableQuestions
from sql_agent.tasks.medical.medical_task import description, make_question_files

_PLACES = (
    *("Quebec", "Finland", "Sardinia", "Norway", "Japan", "Malta", "Ghana", "Peru"),
    *("Nepal", "Oman", "Cuba", "Chile", "Kenya", "Samoa", "Fiji", "Iceland"),
)
_MEDICINES = ("ibuprofen", "naproxen", "celecoxib", "aspirin", "ketoprofen")


def _rows() -> list[tuple[str, str, str, str, str]]:
    rows = []
    for number in range(60):
        name, gene = f"{'ABCDEFGHIJKL'[number % 12]}ostrel-{number} syndrome", f"GEN{number // 3}"
        cause = (
            f"{name} comes from changes in the {gene} gene. The protein helps cells to take up iron, and without it "
            f"iron builds up in the liver. The condition is inherited in an autosomal recessive pattern, so both "
            f"copies are changed in each cell. The parents carry one copy each, and have no signs of it."
        )
        epidemiology = (
            f"The disorder is thought to affect 1 in {1000 * (number + 2):,} newborns. It has been found more often in "
            f"{_PLACES[number % len(_PLACES)]} than elsewhere, for reasons that nobody has explained so far."
        )
        overview = f"Also called iron shadow {number}, Fedder {number}. {name} is a disorder of the skin and the liver."
        first, second = _MEDICINES[number % 5], _MEDICINES[(number + 2) % 5]
        treatment = (
            f"Most people need no treatment at all, but the pain can be strong. It is relieved with anti-inflammatory "
            f"medicines such as {first} or {second}, rarely with Morphine."
        )
        rows.append((name, cause, epidemiology, overview, treatment))
    return rows


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("prose") / "prose.db"
    with closing(sqlite3.connect(path)) as connection, connection:
        columns = "cause TEXT, epidemiology TEXT, overview TEXT, treatment TEXT"
        connection.execute(f"CREATE TABLE disease (id INTEGER PRIMARY KEY, disease_name TEXT, {columns})")
        drug = "med_name TEXT, form TEXT, company_name TEXT, med_approval TEXT"
        connection.execute(f"CREATE TABLE drugs_info (id INTEGER PRIMARY KEY, {drug})")
        statement = (
            "INSERT INTO disease (disease_name, cause, epidemiology, overview, treatment) VALUES (?, ?, ?, ?, ?)"
        )
        connection.executemany(statement, _rows())
        connection.execute("INSERT INTO drugs_info VALUES (1, 'Ibuprofen', 'tablet', 'Lab Corvexa', 'Authorised')")
        connection.execute("INSERT INTO drugs_info VALUES (2, 'Naproxen', 'tablet', 'Kappa Axevrob', 'Authorised')")
        firms = [(f"{'ABCDEFGHIJ'[number % 10]}orvex{'abcdefg'[number // 10]}", number) for number in range(70)]
        drugs = [
            (f"Drug-{number}{end}", f"{firm} {firm[::-1].title()} {end}", state)
            for firm, number in firms
            for end, state in (("Ltd", "Authorised"), ("GmbH", "Withdrawn"))
        ]
        connection.executemany("INSERT INTO drugs_info (med_name, company_name, med_approval) VALUES (?, ?, ?)", drugs)
    return path


@pytest.fixture(scope="module")
def asked(path: Path, tmp_path_factory: pytest.TempPathFactory) -> list[Question]:
    made = make_question_files(path, tmp_path_factory.mktemp("questions"), "en", per_type=100)
    return [question for questions in made.values() for question in questions]


def _of(asked: list[Question], task_type: str, column: str) -> list[Question]:
    """Return the questions of a type whose evidence is cells of `column`."""
    return [q for q in asked if q.task_type == task_type and {each.field for each in q.evidence} == {column}]


def test_a_list_is_a_text_where_its_cells_are_prose(path: Path) -> None:
    columns = fitted(description("en"), read_database(path)).tables["disease"].columns
    assert {name: columns[name].kind for name in ("cause", "epidemiology")} == {"cause": "text", "epidemiology": "text"}
    assert description("en").tables["disease"].columns["cause"].kind == "list"
    assert "prevention" not in columns


def test_a_phrase_inside_a_sentence_is_asked_for(asked: list[Question]) -> None:
    genes = [q for q in _of(asked, "part", "cause") if "GEN" in q.answer and " " not in q.answer]
    figures = [q for q in _of(asked, "part", "epidemiology") if q.answer.startswith("1 in ")]
    assert genes and figures
    for question in (*genes, *figures):
        (cell,) = {each.quote for each in question.evidence}
        assert f" {question.answer} " in cell
    assert "autosomal recessive" in {q.answer for q in _of(asked, "part", "cause")}
    names = [q.answer for q in _of(asked, "part", "overview")]
    assert names and all(re.fullmatch(r"iron shadow (\d+); Fedder \1", answer) for answer in names)


def test_a_name_that_some_cell_contains_is_not_asked_for_as_a_missing_one(asked: list[Question]) -> None:
    missing = " ".join(q.question for q in asked if q.task_type == "unanswerable")
    absent = [name for name in description("en").tables["drugs_info"].absent if name in missing]
    assert absent and "Morphine" not in absent


def test_a_phrase_of_two_long_cells_is_compared(asked: list[Question]) -> None:
    found = [q for q in _of(asked, "comparison", "cause") if "GEN" in q.answer]
    assert found
    for question in found:
        facts = dict(fact.split(": ") for fact in question.answer.split("; "))
        cells = [each.quote for each in question.evidence]
        assert len(facts) == 2
        assert all(
            any(f"{name} comes" in cell and f" {gene} " in cell for cell in cells) for name, gene in facts.items()
        )


def test_people_search_prose_for_names_and_codes(asked: list[Question]) -> None:
    searched = [q for q in asked if q.task_type in {"search", "related", "count"} and "LIKE" in q.statements[-1]]
    words = {word for q in searched for word in re.findall(r"(?:cause|epidemiology) LIKE '%(.+?)%'", q.statements[-1])}
    assert words & set(_PLACES)
    assert any(word.startswith("GEN") for word in words)
    assert not words & {"The", "Most", "It", "Also"}
    assert not any(word == "GEN1" for word in words)  # LIKE finds it in GEN10, too
    related = {word for q in asked if q.task_type == "related" for word in re.findall(r"'%(.+?)%'", q.statements[-1])}
    assert related and not related & set(_PLACES), "a place is behind no disease"


def test_prose_is_searched_for_names_only_in_their_frame_and_makes_no_claims(path: Path, tmp_path: Path) -> None:
    treated = (
        "{name} is indicated for the treatment of adults with {illness}. It is given once a day, with or without food."
    )
    beside = " In patients with {illness} its use was not studied, and the dose may have to be lower than in others."
    with closing(sqlite3.connect(tmp_path / "t.db")) as connection, connection:
        connection.execute("CREATE TABLE disease (id INTEGER PRIMARY KEY, disease_name TEXT, cause TEXT)")
        connection.execute("CREATE TABLE drugs_info (id INTEGER PRIMARY KEY, med_name TEXT, indication TEXT)")
        illnesses = ("Gout", "Asthma", "Lupus")
        cause = "It comes from the genes in most families. It can also come from a fever that was never treated well."
        connection.executemany(
            "INSERT INTO disease (disease_name, cause) VALUES (?, ?)", [(n, cause) for n in illnesses]
        )
        texts = [
            treated.format(name=f"Drug {n}", illness=illnesses[n % 3])
            + (beside.format(illness="Lupus") if n % 3 == 0 else "")
            for n in range(30)
        ]
        drugs = [(f"Drug {n}", text) for n, text in enumerate(texts)]
        connection.executemany("INSERT INTO drugs_info (med_name, indication) VALUES (?, ?)", drugs)
    read = read_database(tmp_path / "t.db")
    catalog = Catalog(fitted(description("en"), read), read)
    assert set(catalog.terms("drugs_info", "indication")) == {"Gout", "Asthma"}, (
        "a drug is not for Lupus, but beside it"
    )
    assert not catalog.description.tables["disease"].claims and description("en").tables["disease"].claims
    fitted_columns = fitted(description("en"), read_database(path)).tables["disease"].columns
    assert not fitted_columns["treatment"].find and fitted_columns["cause"].find


def test_a_heading_or_other_names_alone_are_no_answer_and_no_refusal_where_prose_may_answer(tmp_path: Path) -> None:
    asked = ("Also called the red one.", "What is it?", None)
    long = "It is treated with rest. " * 12
    with closing(sqlite3.connect(tmp_path / "t.db")) as connection, connection:
        connection.execute(
            "CREATE TABLE disease (id INTEGER PRIMARY KEY, disease_name TEXT, overview TEXT, treatment TEXT)"
        )
        rows = [(f"Illness {n}", asked[n % 3] or long, None) for n in range(12)]
        connection.executemany("INSERT INTO disease (disease_name, overview, treatment) VALUES (?, ?, ?)", rows)
    read = read_database(tmp_path / "t.db")
    catalog = Catalog(fitted(description("en"), read), read)
    assert not [*UnanswerableQuestions(catalog, random.Random(0)).lookup()], "headings and other names"
    refused = UnanswerableQuestions(catalog, random.Random(0))
    column = catalog.column("disease", "treatment")
    drafts = [refused._empty(row, "treatment", column) for row in catalog.rows["disease"] for _ in range(9)]
    names = {draft.wording.slots["name"] for draft in drafts if draft is not None}
    assert names, "a short cell tells nothing of it"
    assert not names & {f"Illness {n}" for n in range(2, 12, 3)}, "the overview may say how it is treated"


@pytest.mark.parametrize(
    ("pattern", "said"),
    [("a(b", "is no regular expression"), ("ab", "needs one group, and has 0"), ("(a)(b)", "has 2")],
)
def test_a_pattern_that_cannot_find_one_phrase_is_refused(pattern: str, said: str) -> None:
    with pytest.raises(ValidationError, match=said):
        Part(ask=("Which gene is behind {name}?",), pattern=pattern)


def test_a_company_is_searched_by_the_words_that_only_its_names_begin_with(path: Path, asked: list[Question]) -> None:
    read = read_database(path)
    catalog = Catalog(fitted(description("en"), read), read)
    short = {condition.value for condition in catalog._with_short_name("drugs_info", "company_name")}
    assert "Aorvexa Axevroa" in short, "both of its words are its own"
    assert "Borvexa" in short, "another firm has the second word"
    assert not [name for name in short if name.startswith("Corvexa")], "it is inside another firm's name"
    found = [q for q in asked if "company_name LIKE '%" in str(q.sql)]
    both = [q for q in found if q.task_type == "two_conditions"]
    assert any(str(q.sql).endswith("AND med_approval = 'Withdrawn'") for q in both), (
        "a whole cell as the second condition"
    )
    for question in (q for q in found if q.task_type == "search"):
        (name,) = re.findall(r"company_name LIKE '%([^']+)%'", str(question.sql))
        assert name in short and name in question.question
        assert len(question.evidence) == 2, "the drugs of both of its names are found"
