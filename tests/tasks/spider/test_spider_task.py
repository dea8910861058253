"""A folder in Spider's layout is a task: its questions are split by database, its answers graded by their results."""

from __future__ import annotations

import json
import os
import shutil
import sqlite3
from pathlib import Path

import pandas as pd
import pytest

from sql_agent.cli.question_sets import questions_of_run
from sql_agent.config.settings import Settings, load_settings
from sql_agent.errors import ConfigError, DataError, JudgeError
from sql_agent.reward import JudgeCase, Verdict
from sql_agent.reward.execution_match import statement_in
from sql_agent.schemas import QueryCall, Question
from sql_agent.tasks.spider.questions import read_questions
from sql_agent.tasks.spider.spider_task import CUT, schema_text
from sql_agent.tasks.task import load_task
from tests.support.orchard import write_spider_folder

TASK = load_task("spider")


@pytest.fixture
def data(tmp_path: Path) -> Path:
    return write_spider_folder(tmp_path / "data")


def settings_of(data: Path, *overrides: str) -> Settings:
    return load_settings(
        ["task=spider", f"spider.data_dir={data}", "spider.val_databases=1", f"local.cache_dir={data}", *overrides]
    )


async def graded(question: Question, answer: str, settings: Settings, *calls: QueryCall) -> Verdict:
    return await TASK.judge(settings).grade(JudgeCase(question=question, answer=answer, calls=calls))


def test_databases_are_held_out_as_a_whole_and_named(data: Path) -> None:
    said: list[str] = []
    settings = settings_of(data)
    TASK.prepare(settings, said.append)
    train, val = questions_of_run(settings, TASK)
    trained, validated = {q.database for q in train}, {q.database for q in val["template"]}
    assert len(trained) == len(validated) == 1 and not trained & validated
    assert said[0].endswith(f"{data}: {validated.pop()}")
    assert {q.id for q in TASK.questions(settings, "test")} == {q.id for q in TASK.questions(settings, "val")}
    everything = TASK.questions(settings_of(data, "spider.val_databases=0"), "train")
    assert len(everything) == 9, "all but the one whose gold statement returns no row, which anything would match"
    with pytest.raises(ConfigError, match="asks about 2 databases"):
        TASK.questions(settings_of(data, "spider.val_databases=2"), "train")


def test_one_database_with_development_questions_needs_no_setting(data: Path) -> None:
    shutil.rmtree(data / "database" / "ferries")
    questions = json.loads((data / "train_spider.json").read_text(encoding="utf-8"))
    about_it = [question for question in questions if question["db_id"] == "orchard"]
    (data / "train_spider.json").write_text(json.dumps(about_it[1:]), encoding="utf-8")
    settings = load_settings(["task=spider", f"spider.data_dir={data}", f"local.cache_dir={data}"])
    with pytest.raises(ConfigError, match=r"needs a dev\.json"):
        TASK.prepare(settings, print)
    (data / "dev.json").write_text(json.dumps(about_it[:1]), encoding="utf-8")
    said: list[str] = []
    TASK.prepare(settings, said.append)
    assert said == ["Training and validation are about the one database orchard; the validation file is dev.json"]
    train, val = questions_of_run(settings, TASK)
    assert {q.database for q in train} == {"orchard"}
    assert [q.id for q in val["template"]] == ["dev-0"] == [q.id for q in TASK.questions(settings, "test")]


def test_a_file_of_the_user_is_never_trained_on_for_the_databases_held_out(data: Path) -> None:
    mine = data / "mine.json"
    shutil.copy(data / "train_spider.json", mine)
    train = TASK.questions(settings_of(data, f"data.train_file={mine}"), "train")
    held_out = {q.database for q in TASK.questions(settings_of(data), "val")}
    assert train and held_out.isdisjoint({q.database for q in train})
    assert len(TASK.questions(settings_of(data, f"data.val_file={mine}"), "val")) == 10


def test_questions_are_read_from_json_and_parquet_with_their_hardness(data: Path) -> None:
    questions = read_questions(data / "train_spider.json")
    assert (questions[0].id, questions[0].database, questions[0].task_type) == ("train_spider-0", "orchard", "easy")
    assert [q.task_type for q in questions] == [
        "easy", "easy", "easy", "medium", "hard", "easy", "easy", "medium", "hard", "easy",
    ]  # fmt: skip
    frame = pd.DataFrame(json.loads((data / "train_spider.json").read_text(encoding="utf-8")))
    frame.to_parquet(data / "train_spider.parquet")
    assert [q.sql for q in read_questions(data / "train_spider.parquet")] == [q.sql for q in questions]


@pytest.mark.parametrize(
    ("content", "said"),
    [
        ("[]", "contains no question"),
        ("{", "is not JSON"),
        ("[" * 100_000, "is not JSON"),
        ("[1]", "not a list of objects"),
        ('[{"db_id": "orchard", "question": "?"}]', "question 0, query: missing"),
    ],
)
def test_a_malformed_file_is_named(content: str, said: str, data: Path) -> None:
    (data / "bad.json").write_text(content, encoding="utf-8")
    with pytest.raises(DataError, match=said):
        read_questions(data / "bad.json")


def test_missing_data_is_said(data: Path) -> None:
    with pytest.raises(ConfigError, match="--data-dir"):
        TASK.prepare(load_settings(["task=spider"]), print)
    own = load_settings(["task=spider", f"database.path={data / 'database' / 'orchard' / 'orchard.sqlite'}"])
    TASK.prepare(own, print)
    with TASK.open_database(own) as database:
        assert "CREATE TABLE Tree" in TASK.describe("en", database, own), "one file is enough to ask about it"
    with pytest.raises(DataError, match=r"no database '\.\./orchard'"):
        TASK.source_of(settings_of(data), "../orchard")
    (data / "none").mkdir()
    with pytest.raises(ConfigError, match="no database in"):
        TASK.source_of(settings_of(data / "none"), None)


async def test_an_answer_is_graded_by_its_whole_result(data: Path) -> None:
    settings = settings_of(data)
    question = read_questions(data / "train_spider.json")[1]  # SELECT kind FROM tree WHERE row = 1
    assert (await graded(question, "```sql\nSELECT kind FROM tree WHERE tree_id < 3;\n```", settings)).score == 1.0
    wrong = await graded(question, "SELECT kind FROM tree", settings)
    assert wrong.score == 0.0
    assert wrong.reason == "the gold statement returns 2 rows of 1 columns, the answer's 4 rows of 1 columns"
    assert "unknown_column" in (await graded(question, "SELECT kinds FROM tree", settings)).reason
    assert "not_select" in (await graded(question, "DROP TABLE tree", settings)).reason
    assert (await graded(question, "", settings)).score == 0.0
    generous = settings_of(data, "spider.partial_credit=0.3")
    half = await graded(question, "SELECT kind FROM tree WHERE tree_id = 1", generous)
    assert half.score == pytest.approx(0.3 * 2 * 1 / 3)
    broken = question.model_copy(update={"sql": "SELECT nothing FROM tree"})
    with pytest.raises(JudgeError, match="gold statement"):
        await graded(broken, "SELECT 1", settings)


async def test_a_database_that_changed_meanwhile_is_no_fault_of_the_statement(data: Path) -> None:
    judge = TASK.judge(settings_of(data))
    question = read_questions(data / "train_spider.json")[0]  # how many trees are there
    case = JudgeCase(question=question, answer="SELECT 4", calls=())
    assert (await judge.grade(case)).score == 1.0
    os.utime(data / "database" / "orchard" / "orchard.sqlite")
    with pytest.raises(JudgeError, match="was changed"):
        await judge.grade(case)


async def test_empty_results_are_equal_by_the_public_rules(data: Path) -> None:
    question = read_questions(data / "train_spider.json")[5]  # nobody bought before 2000
    assert (await graded(question, "SELECT kind FROM tree WHERE row > 9", settings_of(data))).score == 1.0


async def test_a_statement_must_be_right_in_every_file_of_its_database(data: Path) -> None:
    question = read_questions(data / "train_spider.json")[0]  # how many trees are there: 4
    settings = settings_of(data)
    assert (await graded(question, "SELECT 4", settings)).score == 1.0
    other = data / "database" / "orchard" / "fewer.sqlite"
    shutil.copy(data / "database" / "orchard" / "orchard.sqlite", other)
    connection = sqlite3.connect(other)
    connection.execute("DELETE FROM tree WHERE tree_id = 4")
    connection.commit()
    connection.close()
    assert (await graded(question, "SELECT 4", settings)).score == 0.0
    assert (await graded(question, "SELECT count(tree_id) FROM tree", settings)).score == 1.0


def test_the_description_shows_keys_and_values_and_is_cut_to_its_room(data: Path) -> None:
    path = data / "database" / "ferries" / "ferries.sqlite"
    text = schema_text(path, max_chars=6000, values=2)
    assert "CREATE TABLE ferry (" in text and "primary key (id)" in text
    assert "foreign key (home) references port (name)" in text
    assert "home text /* 'Vik', 'Sund' */" in text, "the most frequent first"
    assert "seats integer," in text
    bare = schema_text(path, max_chars=len(text) - 1, values=2)
    assert "Vik" not in bare and "home text," in bare
    tight = schema_text(path, max_chars=175, values=2)
    assert len(tight) <= 175 and CUT in tight and "CREATE TABLE ferry" in tight


def test_settings_say_how_much_of_the_tables_the_model_reads(data: Path) -> None:
    def shown(*overrides: str) -> str:
        settings = settings_of(data, *overrides)
        with TASK.databases(settings) as databases, databases.of("ferries") as database:
            return TASK.describe("en", database, settings)

    assert "'Vik', 'Sund'" in shown()
    assert "'Vik' */" in shown("spider.schema_values=1")
    assert "Vik" not in shown("spider.schema_values=0")
    assert CUT in shown("spider.schema_chars=175") and CUT not in shown()


async def test_a_statement_that_is_slow_to_compare_is_wrong_and_a_slow_gold_statement_names_the_setting(
    data: Path,
) -> None:
    count = f"SELECT count(*) FROM {', '.join(f'tree t{number}' for number in range(12))}"  # of 4 rows each
    settings, patient = settings_of(data, "spider.deadline_s=0.05"), settings_of(data, "spider.deadline_s=60")
    question = read_questions(data / "train_spider.json")[0]
    assert "interrupted after 0.05 seconds" in (await graded(question, count, settings)).reason
    slow = question.model_copy(update={"sql": count})
    with pytest.raises(JudgeError) as caught:
        await graded(slow, "SELECT 16777216", settings)
    assert "raise spider.deadline_s" in str(caught.value.hint)
    assert (await graded(slow, "SELECT 16777216", patient)).score == 1.0


@pytest.mark.parametrize(
    ("text", "statement"),
    [
        ("SELECT 1", "SELECT 1"),
        ("```sql\nSELECT 1;\n```", "SELECT 1"),
        ("First ```sql\nSELECT 1\n``` then ```SQL\nSELECT 2\n``` is better.", "SELECT 2"),
        ("```\nWITH a AS (SELECT 1) SELECT * FROM a", "WITH a AS (SELECT 1) SELECT * FROM a"),
        ("The statement is:\nSELECT 1", "SELECT 1"),
        ("I do not know", "I do not know"),
    ],
)
def test_the_statement_is_found_in_what_a_model_writes(text: str, statement: str) -> None:
    assert statement_in(text) == statement
