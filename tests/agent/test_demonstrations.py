"""Demonstrations show how the gold statements answer a question, and how to go on after what models do wrong."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from sql_agent.agent.demonstrations import Demonstration, demonstrate
from sql_agent.agent.tools import LAST, REPEATED
from sql_agent.config.settings import Settings, load_settings
from sql_agent.schemas import Lang, Question
from sql_agent.tasks.task import Task, load_task
from tests.support.small_database import make_database

FORM = "SELECT form FROM drugs_info WHERE med_name = 'Drug 1'"


def asked(task: Task, settings: Settings, start: str) -> Question:
    return next(question for question in task.questions(settings, "train") if question.question.startswith(start))


def demonstrated(
    tmp_path: Path, *sql: str, numbers: Sequence[int], max_turns: int, told: str = ""
) -> list[Demonstration]:
    """Return the demonstrations with these numbers of a question about drug 1 whose gold statements are `sql`."""
    settings = load_settings(
        [f"database.path={make_database(tmp_path / 'medical.db')}", f"agent.max_turns={max_turns}"]
    )
    task = load_task("medical")
    question = Question(id="1", question=f"{told}In which form does Drug 1 come?", answer="capsule", sql="; ".join(sql))
    with task.databases(settings) as databases, databases.of(None) as database:
        return [demonstrate(number, question, task, database, settings) for number in numbers]


def test_demonstrations_of_the_tool_go_on_after_an_error(tmp_path: Path) -> None:
    plain, after_error = demonstrated(tmp_path, FORM, numbers=(0, 1), max_turns=4)
    assert [turn.is_trained for turn in plain.turns] == [True, True]
    assert [turn.is_trained for turn in after_error.turns] == [False, True, True]
    assert (
        "FROM disease" in after_error.turns[0].text
        and "try: SELECT form FROM drugs_info" in after_error.turns[0].reaction
    )


def test_a_text_that_was_tested_in_a_column_of_another_table_is_searched_as_the_hint_says(tmp_path: Path) -> None:
    (shown,) = demonstrated(tmp_path, FORM, numbers=(1 + 6 * 15,), max_turns=4)
    wrong, right, _ = shown.turns
    assert not wrong.is_trained and "FROM drugs_info" in wrong.text and "med_name" not in wrong.text
    assert f"try: {FORM}\\n" in wrong.reaction and right.text == FORM


def test_after_a_column_of_another_table_the_row_is_read_as_the_hint_says(tmp_path: Path) -> None:
    (shown,) = demonstrated(tmp_path, FORM, numbers=(133,), max_turns=4)
    wrong, whole_row, answer = shown.turns
    assert not wrong.is_trained and "no such column" in wrong.reaction
    assert whole_row.is_trained and whole_row.text == "SELECT * FROM drugs_info WHERE med_name = 'Drug 1'"
    assert "capsule" in whole_row.reaction and answer.text == "capsule"


def test_a_hint_that_reads_less_than_the_gold_statements_is_not_followed(tmp_path: Path) -> None:
    other = FORM.replace("Drug 1", "Drug 2")
    (shown,) = demonstrated(tmp_path, FORM, other, numbers=(133,), max_turns=5)
    assert [turn.text for turn in shown.turns[1:3]] == [FORM, other]


def test_a_condition_on_a_remark_beside_the_question_is_left_out(tmp_path: Path) -> None:
    once, twice = demonstrated(tmp_path, FORM, numbers=(25, 55), max_turns=5, told="My aunt moves house. ")
    wrong, right, answer = once.turns
    assert not wrong.is_trained and "LIKE '%My aunt moves house%'" in wrong.text and '"count":0' in wrong.reaction
    assert right.is_trained and right.text == FORM and "try: SELECT" in wrong.reaction and answer.text == "capsule"
    assert [turn.is_trained for turn in twice.turns] == [False, False, True, True]
    assert REPEATED in twice.turns[1].reaction


def test_gold_sql_that_fails_is_demonstrated_as_it_is(tmp_path: Path) -> None:
    sql = "SELECT form FORM drugs_info"
    for shown in demonstrated(tmp_path, sql, numbers=range(1, 97, 6), max_turns=5, told="My aunt moves. "):
        assert {turn.text for turn in shown.turns if turn.is_trained} <= {sql, "capsule"}


def test_demonstrations_of_the_tool_go_on_after_a_statement_that_was_made_twice(tmp_path: Path) -> None:
    missed = FORM.replace("Drug 1", "Drugg 1")
    (repeated,) = demonstrated(tmp_path, missed, FORM, numbers=(7,), max_turns=5)
    assert [turn.is_trained for turn in repeated.turns] == [False, False, True, True]
    assert REPEATED not in repeated.turns[0].reaction and REPEATED in repeated.turns[1].reaction
    assert FORM in repeated.turns[2].text and "capsule" in repeated.turns[2].reaction


def test_a_thought_chooses_the_column_before_the_statement_reads_it(tmp_path: Path) -> None:
    settings, task = load_settings([f"database.path={make_database(tmp_path / 'medical.db')}"]), load_task("medical")

    def thoughts(sql: str, lang: Lang) -> list[str]:
        question = Question(id="1", question="How does Disease 1 spread?", answer="air", sql=sql, lang=lang)
        with task.databases(settings) as databases, databases.of(None) as database:
            return [turn.thought for turn in demonstrate(0, question, task, database, settings).turns]

    spread = "SELECT epidemiology FROM disease WHERE disease_name = 'Disease 1'"
    cause = spread.replace("epidemiology", "cause")
    assert thoughts(f"{spread}; {cause}", "zh") == [
        "问的是“流行病学：哪些人易得、多不多见、是否传染、怎么传播和染上”，"
        "查 disease.epidemiology，查不到再查 disease.cause。",
        "还没有查清。问的是“病因：由什么引起、怎么得的”，查 disease.cause。",
        "可以回答了。",
    ]
    side_effects = "SELECT d.adverse_reactions FROM drugs_info AS d WHERE d.med_name = 'Drug 1'"
    assert thoughts(side_effects, "en") == [
        "The question is about adverse reactions, so I read drugs_info.adverse_reactions.",
        "Now I can answer.",
    ]
    by_symptom = "SELECT disease_name FROM disease WHERE clinical_manif LIKE '%fever%'"
    assert thoughts(by_symptom, "en")[0] == "The question is about clinical manif, so I read disease.clinical_manif."
    assert thoughts("SELECT * FROM disease WHERE disease_name = 'Disease 1'", "en")[0] == (
        "I look this up in the database."
    )


def test_demonstrations_answer_when_no_query_is_left(tmp_path: Path) -> None:
    (stuck,) = demonstrated(tmp_path, FORM, numbers=(19,), max_turns=4)
    assert [turn.is_trained for turn in stuck.turns] == [True, False, False, True]
    assert [LAST in turn.reaction for turn in stuck.turns] == [False, False, True, False]
    assert stuck.turns[-1].text == "capsule"


def test_demonstrations_keep_to_the_turns_and_answer_as_the_tool_does_then(tmp_path: Path) -> None:
    shown = demonstrated(tmp_path, FORM, numbers=(0, 1, 7, 19), max_turns=2)
    assert all(len(conversation.turns) == 2 and LAST in conversation.turns[0].reaction for conversation in shown)


def test_demonstrations_search_again_after_a_statement_that_found_nothing(tmp_path: Path) -> None:
    settings = load_settings(
        [f"database.path={make_database(tmp_path / 'medical.db')}", "agent.workflow=check-rewrite"]
    )
    task = load_task("medical")
    missed, found = (f"SELECT form FROM drugs_info WHERE med_name = '{name}'" for name in ("Drugg 1", "Drug 1"))
    question = Question(id="1", question="In which form does Drugg 1 come?", answer="tablet", sql=f"{missed}; {found}")
    with task.databases(settings) as databases, databases.of(None) as database:
        shown = demonstrate(1, question, task, database, settings)
    assert [turn.is_trained for turn in shown.turns] == [False, True]
    assert "Drug 1" in shown.turns[0].reaction and found in shown.turns[1].text


def test_demonstrations_show_the_gold_statement_and_sometimes_how_an_error_is_repaired(
    task: Task, settings: Settings
) -> None:
    question = asked(task, settings, "List the names")
    with task.databases(settings) as databases, databases.of(question.database) as database:
        written, rewritten = (demonstrate(number, question, task, database, settings) for number in (0, 1))
    gold = f"```sql\n{question.sql}\n```"
    assert [turn.text for turn in written.turns] == [gold]
    wrong, right = rewritten.turns
    assert right.text == gold and right.is_trained
    assert not wrong.is_trained and "no such column" in wrong.reaction
    assert "CREATE TABLE ferry" in written.system and question.question in written.opening


def test_demonstrations_repair_different_mistakes(task: Task, settings: Settings) -> None:
    joined = "SELECT a.name FROM ferry AS a JOIN ferry AS b ON a.id = b.id"
    question = asked(task, settings, "List the names").model_copy(update={"sql": joined})
    with task.databases(settings) as databases, databases.of(question.database) as database:
        shown = [demonstrate(number, question, task, database, settings) for number in range(1, 24, 4)]
    reactions = [conversation.turns[0].reaction for conversation in shown]
    for part in ("no such column", "ambiguous column name"):
        assert any(part in reaction for reaction in reactions), part
    assert all(conversation.turns[1].text == f"```sql\n{joined}\n```" for conversation in shown)
