"""A test that training saw is found out, by its words or by the rows that it is about."""

from __future__ import annotations

from pathlib import Path

from sql_agent.cli.question_sets import find_overlap
from sql_agent.schemas import Evidence, Question


def about(number: int, text: str, row: int | None, database: str | None = None, table: str = "drugs_info") -> Question:
    evidence = (Evidence(table=table, row_id=row, field="form", quote="x"),) if row else ()
    return Question(id=f"q{number}", question=text, answer="x", evidence=evidence, database=database)


def path_of(name: str | None) -> Path:
    return Path(f"/data/{name or 'own'}.db")


def found(asked: Question, trained: Question) -> tuple[bool, bool]:
    overlap = find_overlap([asked], [trained], path_of)
    return bool(overlap.questions), bool(overlap.entities)


def test_the_same_words_are_the_same_question_whatever_their_case_and_spaces() -> None:
    assert found(about(1, "Which  FORM has it?\n", 1), about(2, "Which form has it?", 2)) == (True, False)


def test_the_same_row_is_the_same_entity_however_it_is_asked_about() -> None:
    assert found(about(1, "a?", 1), about(2, "b?", 1)) == (False, True)
    assert found(about(1, "a?", 1), about(2, "b?", 1, table="Drugs_Info")) == (False, True)


def test_rows_of_other_tables_or_databases_are_other_entities() -> None:
    assert found(about(1, "a?", 1), about(2, "b?", 1, table="disease")) == (False, False)
    assert found(about(1, "a?", 1, "sample_en"), about(2, "b?", 1)) == (False, False)


def test_a_database_by_its_name_and_the_run_s_own_may_be_one_file() -> None:
    assert found(about(1, "a?", 1, "own"), about(2, "b?", 1)) == (False, True)


def test_a_question_without_evidence_shares_no_entity() -> None:
    assert found(about(1, "a?", None), about(2, "b?", 1)) == (False, False)
