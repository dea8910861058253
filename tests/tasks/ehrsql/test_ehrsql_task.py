"""Questions about a hospital are answered by the rules of EHRSQL-2024; abstaining is an answer, and a guess costs."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from sql_agent.agent.demonstrations import demonstrate
from sql_agent.agent.rollout import run_rollout
from sql_agent.cli.question_sets import questions_of_run
from sql_agent.config.endpoints import ModelEndpoint
from sql_agent.config.settings import Settings, load_settings
from sql_agent.errors import ConfigError
from sql_agent.reward import JudgeCase
from sql_agent.rollouts.metrics import refusals
from sql_agent.schemas import Question, RolloutRecord
from sql_agent.tasks.spider.folder import default_database
from sql_agent.tasks.task import default_settings, load_task
from tests.support.hospital import ROUTES, write_ehrsql_folder
from tests.support.judge_server import Server, serving

TASK = load_task("ehrsql")


@pytest.fixture
def settings(tmp_path: Path) -> Settings:
    return load_settings(
        ["task=ehrsql", f"spider.data_dir={write_ehrsql_folder(tmp_path / 'data')}", f"local.cache_dir={tmp_path}"],
        defaults=default_settings("ehrsql"),
    )


@pytest.fixture
def model() -> Iterator[Server]:
    with serving() as endpoint:
        yield endpoint


def asked(settings: Settings, start: str) -> Question:
    of_both = [*TASK.questions(settings, "train"), *TASK.questions(settings, "val")]
    return next(question for question in of_both if question.question.startswith(start))


async def score(settings: Settings, question: Question, answer: str) -> float:
    return (await TASK.judge(settings).grade(JudgeCase(question=question, answer=answer, calls=()))).score


async def play(model: Server, settings: Settings, question: Question, *script: str) -> RolloutRecord:
    model.script = list(script)
    with TASK.databases(settings) as databases, databases.of(question.database) as database:
        judge, endpoint = TASK.judge(settings), ModelEndpoint(f"{model.url}/v1", "m", 0.0)
        return await run_rollout(question, TASK, endpoint, database, judge, settings)


def test_training_gets_made_up_unanswerable_questions_and_validation_only_its_own(settings: Settings) -> None:
    train, val = questions_of_run(settings, TASK)
    unanswerable = [question for question in train if question.sql is None]
    assert len(train) == 10 and len(unanswerable) == 2, "a fifth"
    assert {question.answer for question in unanswerable} == {"null"}
    assert not any("{" in question.question for question in unanswerable), "templates name drugs, patients, …"
    types = {question.id: question.task_type for question in val["template"]}
    assert types == {
        "v0": "prescriptions",
        "v1": "patients",
        "v2": "prescriptions",
        "v3": "unanswerable",
        "v4": "no_such_patient",
    }


def test_questions_are_made_up_about_a_hospital_without_procedures(settings: Settings) -> None:
    path = default_database(settings)
    with closing(sqlite3.connect(path)) as connection:
        connection.execute("DELETE FROM procedures_icd")
        connection.commit()
    made_up = [q for q in TASK.questions(settings, "train") if q.id.startswith("made-up")]
    assert made_up and not any("{" in question.question for question in made_up)


def test_the_model_reads_conventions_and_the_values_that_a_question_names(settings: Settings) -> None:
    with TASK.open_database(settings) as database:
        prompt = TASK.describe("en", database, settings)

        def values(question: str) -> list[str]:
            text = TASK.question_text(Question(id="1", question=question, answer=""), database)
            return text.removeprefix(f"{question}\nValues: ").split(", ")

        assert "'2100-12-31 23:59:00'" in prompt and "CREATE TABLE patients" in prompt and "reply null" in prompt
        assert len(prompt) / 3.2 < 2800
        assert values("How is Heparin (IV) given to patient 10002?") == [
            "prescriptions.drug = 'heparin (iv)'",
            "patients.subject_id = 10002",
        ]
        assert values("Had patient 999 chest pain, unspecified?") == [
            "d_icd_diagnoses.long_title = 'chest pain", "unspecified'",
        ], "the longest title, and no patient that does not exist"  # fmt: skip
        assert values("How many had the closed biopsy of o'brien's gland?") == [
            "d_icd_procedures.long_title = 'closed biopsy of o''brien''s gland'"
        ]
        assert values("What was the glucose?") == ["d_labitems.label = 'glucose'", "d_items.label = 'glucose'"]
        assert values("What did patient 10001 weigh?")[1] == "d_items.label = 'daily weight'", "by its other name"
        assert values("Can I go home?") == ["none"]


async def test_results_are_compared_as_in_the_shared_task(settings: Settings) -> None:
    routes = asked(settings, "By which routes")
    for sql, expected in {
        "SELECT 'iv' UNION SELECT 'po'": 1.0,
        f"{ROUTES} ORDER BY 1 DESC": 1.0,
        "SELECT DISTINCT route FROM prescriptions": 1.0,
        "SELECT route FROM prescriptions": -0.5,  # one of them twice
        "SELECT route, drug FROM prescriptions WHERE drug = 'aspirin'": -0.5,
        "SELECT rout FROM prescriptions": -0.5,
        "": -0.5,
    }.items():
        assert await score(settings, routes, sql) == expected, sql
    glucose = asked(settings, "What was the first glucose")  # 100.5004
    assert await score(settings, glucose, "SELECT '100.50'") == 1.0, "rounded, and text that is a number"
    assert await score(settings, glucose, "SELECT 100.502") == -0.5
    count = asked(settings, "How many patients are")
    fixed = "SELECT 2 WHERE date(current_time) = date('now') AND current_date > = '2100-12-31'"
    assert await score(settings, count, fixed) == 1.0, "the clock of the data, and > = as one"


async def test_abstaining_is_right_without_an_answer_and_better_than_a_guess_elsewhere(settings: Settings) -> None:
    windows, gender = asked(settings, "Who cleans"), asked(settings, "What is the gender")
    assert [await score(settings, windows, answer) for answer in ("null", "`NULL`", "SELECT 1")] == [1.0, 1.0, -0.5]
    assert [await score(settings, gender, answer) for answer in ("null", "SELECT 'f'", "SELECT 'm'")] == [
        0.0,
        1.0,
        -0.5,
    ]
    free = settings.model_copy(update={"spider": settings.spider.model_copy(update={"penalty": 0.0})})
    assert await score(free, windows, "SELECT 1") == 0.0
    assert TASK.judge(free).identity != TASK.judge(settings).identity


async def test_the_model_abstains_at_once_and_rewrites_what_finds_nothing(model: Server, settings: Settings) -> None:
    abstained = await play(model, settings, asked(settings, "Who cleans"), "null")
    assert (abstained.answer, abstained.calls) == ("null", ())
    assert abstained.reward is not None and abstained.reward.total == 1.0
    nothing = "SELECT gender FROM patients WHERE subject_id = 1"
    record = await play(model, settings, asked(settings, "What is the gender"), nothing, nothing.replace("1", "10001"))
    assert [reply.role for reply in record.replies] == ["write", "rewrite"]
    assert record.reward is not None and record.reward.total == 1.0
    wrong = await play(model, settings, asked(settings, "What is the gender"), "SELECT COUNT(*) FROM patients")
    assert len(wrong.replies) == 1, "a statement with rows is final"
    assert wrong.reward is not None and wrong.reward.total == -0.5
    assert refusals([abstained, record, wrong], TASK.words) == {
        "agent/refused": pytest.approx(1 / 3), "refused_answerable": 0.0, "right_refusals": 1.0,
    }  # fmt: skip


@pytest.mark.parametrize("workflow", ["check-rewrite", "react"])
def test_abstaining_is_demonstrated_in_one_turn(workflow: str, settings: Settings) -> None:
    chosen = settings.model_copy(update={"agent": settings.agent.model_copy(update={"workflow": workflow})})
    question = asked(settings, "Does patient 777")
    with TASK.open_database(settings) as database:
        shown = demonstrate(1, question, TASK, database, chosen)
    assert [turn.text for turn in shown.turns] == ["null"]
    assert shown.opening.endswith("Values: none") and "reply null" in shown.system


def test_missing_data_is_said() -> None:
    with pytest.raises(ConfigError, match="the task ehrsql has no data"):
        TASK.prepare(load_settings(["task=ehrsql"]), print)
