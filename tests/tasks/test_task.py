"""Another task than the medical one needs one value, and nothing else of the program changes."""

from __future__ import annotations

import json
import sys
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import agentlightning as agl
import pytest

from sql_agent.__main__ import main
from sql_agent.agent.rollout import run_rollout
from sql_agent.cli.question_sets import leaves_out_natural, questions_of_run
from sql_agent.config.endpoints import ModelEndpoint
from sql_agent.config.settings import Settings, load_settings
from sql_agent.errors import ConfigError, DatabaseFileError
from sql_agent.questions.question_check import check_questions
from sql_agent.questions.question_files import write_jsonl
from sql_agent.rollouts.lit_agent import SqlLitAgent
from sql_agent.rollouts.run_settings import route_resources, sent_settings
from sql_agent.runs.run_folder import read_sessions
from sql_agent.schemas import Evidence, Question, RolloutRecord
from sql_agent.tasks.task import Task, load_task
from tests.support import library
from tests.support.chat_server import tool_call
from tests.support.judge_server import serving
from tests.support.processes import finish, lines, start

LIBRARY = "tests.support.library:TASK"


@pytest.fixture
def settings(tmp_path: Path) -> Settings:
    return load_settings([f"runs_dir={tmp_path / 'runs'}", f"task={LIBRARY}"])


@pytest.fixture
def task(settings: Settings) -> Task:
    """The library's task, with its files made."""
    task = load_task(settings.task)
    task.prepare(settings, lambda _: None)
    return task


async def test_a_question_is_asked_with_the_words_of_the_task_and_graded_by_its_judge(
    task: Task, settings: Settings
) -> None:
    question = library.QUESTIONS["val"][0]
    with task.open_database(settings) as database, serving() as model:
        model.script = [tool_call(question.sql or ""), "C3"]
        endpoint = ModelEndpoint(f"{model.url}/v1", "m", 0.0)
        record = await run_rollout(question, task, endpoint, database, task.judge(settings), settings)
    assert record.calls[0].answer.records == (("C3",),)
    assert record.reward is not None
    assert (record.reward.rule, record.reward.judge, record.reward.judge_name) == (0.1, 1.0, "exact")
    asked = model.requests[0]
    assert asked["messages"][0]["content"] == (
        "Answer from the library's tables: books(title, author, shelf); loans(title, reader)."
    )
    assert asked["tools"][0]["function"]["description"] == "Run one SELECT on books and loans."
    assert not any(word in json.dumps(model.requests) for word in ("medical", "drug", "disease"))
    assert task.metrics([record]) == {"library/words": 1.0}


async def test_each_rollout_is_told_of_and_queries_the_database_of_its_question(task: Task, settings: Settings) -> None:
    here = library.QUESTIONS["train"][0]
    there = library.NATURAL[0]
    agent = SqlLitAgent(settings)
    rollout = SimpleNamespace(rollout_id="r", attempt=SimpleNamespace(attempt_id="a"))
    with serving() as model:
        proxy: Any = SimpleNamespace(get_base_url=lambda *_: f"{model.url}/v1", model="m", api_key="k")
        resources = route_resources(proxy, sent_settings(settings, "r"))
        for question, rows in ((here, (("B2",),)), (there, (("Z9",),)), (here, (("B2",),))):
            model.script = [tool_call(question.sql or ""), question.answer]
            spans = await agent.validation_rollout_async(question.model_dump(), resources, rollout)
            record = RolloutRecord.model_validate(agl.get_object_value(spans[0]))
            assert record.calls[0].answer.records == rows
            assert record.reward is not None and record.reward.judge == 1.0
    prompts = [request["messages"][0]["content"] for request in model.requests[::2]]
    assert ["due" in prompt for prompt in prompts] == [False, True, False], "a column of the branch's table"


def test_demonstrations_and_checks_query_the_database_of_each_question(task: Task, settings: Settings) -> None:
    questions = [*library.QUESTIONS["train"], *library.NATURAL]
    with task.databases(settings) as databases:
        checked = check_questions(questions, databases, task.words, task.judge(settings))
    assert [c.earned for c in checked] == [1.0] * 4
    assert {Path(str(c.database)).name for c in checked} == {"library.db", "branch.db"}


def test_questions_about_it_are_checked_by_the_command_line(
    task: Task, settings: Settings, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "mine.jsonl"
    write_jsonl(file, [(question, {}) for question in library.QUESTIONS["train"]])
    database = str(task.database_source(settings))
    assert main(["data", "check", str(file), "--db", database, "--task", LIBRARY]) == 0
    shown = capsys.readouterr().out
    assert "2 of 2" in shown and task.disclaimer in shown


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"question": "On which shelf is Dune?"}, "1 validation questions are also training questions"),
        ({"id": "val-reader-Dune"}, "1 ids of validation questions are also those of the natural benchmark"),
    ],
)
def test_a_benchmark_that_training_or_the_other_set_holds_too_is_refused(
    change: dict[str, str], said: str, task: Task, settings: Settings
) -> None:
    asked = settings.model_copy(update={"data": settings.data.model_copy(update={"natural_questions": 2})})
    train, val = questions_of_run(asked, task)
    assert len(train) == 2
    assert {name: [q.task_type for q in each] for name, each in val.items()} == {
        "template": ["shelf", "reader"], "natural": ["reader", "shelf"],
    }  # fmt: skip
    assert list(questions_of_run(settings, task)[1]) == ["template"], "as many as data.natural_questions says"
    other = replace(task, natural_questions=lambda _: [library.NATURAL[0].model_copy(update=change)])
    with pytest.raises(ConfigError, match=said):
        questions_of_run(asked, other)


@pytest.mark.parametrize(("quote", "sets"), [("B2", ["template", "real"]), ("Z9", ["template"])])
def test_a_benchmark_of_a_real_database_is_asked_where_the_database_is_this_one(
    quote: str, sets: list[str], task: Task, settings: Settings
) -> None:
    cell = Evidence(table="books", row_id=1, field="shelf", quote=quote)
    question = Question(id="real-1", question="where did you put Dune", answer=quote, evidence=(cell,))
    other = replace(task, real_questions=lambda _: [question], natural_questions=lambda _: ())
    asked = settings.model_copy(update={"data": settings.data.model_copy(update={"natural_questions": 2})})
    assert list(questions_of_run(asked, other)[1]) == sets
    assert list(questions_of_run(settings, other)[1]) == ["template"], "not with data.natural_questions=0"


def test_a_run_on_a_server_is_not_validated_on_a_benchmark_about_files(
    task: Task, settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    data, database = settings.data.model_copy(update={"natural_questions": 2}), settings.database
    asked = settings.model_copy(update={"data": data, "database": database.model_copy(update={"path": None})})
    assert not leaves_out_natural(asked, task)
    monkeypatch.setenv("DATABASE_URL", "mysql+pymysql://reader:secret@db.example/library")
    assert leaves_out_natural(asked, task)
    assert list(questions_of_run(asked, task)[1]) == ["template"]
    assert task.database_shown(asked) == "mysql://reader@db.example:3306/library", "without the password"


def test_a_run_can_be_held_to_some_types_of_question(task: Task, settings: Settings) -> None:
    def of_types(*types: str) -> Settings:
        return settings.model_copy(update={"data": settings.data.model_copy(update={"task_types": types})})

    train, val = questions_of_run(of_types("shelf"), task)
    assert {q.task_type for q in (*train, *val["template"])} == {"shelf"}
    assert len(val["template"]) == 1
    with pytest.raises(ConfigError, match=r"no question of the type 'shelves'") as refused:
        questions_of_run(of_types("shelf", "shelves"), task)
    assert "reader, shelf" in str(refused.value.hint)


@pytest.mark.parametrize(
    ("sql", "kind", "hint"),
    [
        ("SELECT med_name FROM drugs_info", "forbidden_table", "only books and loans may be read"),
        ("SELECT overview FROM disease", "unknown_table", "the database has books and loans"),
        ("SELECT shelf FROM loans", "unknown_column", "shelf is a column of books"),
    ],
)
def test_no_statement_reads_another_table_than_those_of_the_task(
    task: Task, settings: Settings, sql: str, kind: str, hint: str
) -> None:
    with task.open_database(settings) as database:
        assert database.query("SELECT b.shelf FROM books b JOIN Loans l ON l.title = b.title").from_tables
        error = database.query(sql).error
    assert error is not None
    assert (error.kind, error.hint) == (kind, hint)


def test_a_database_of_another_task_is_refused_with_the_hint_of_this_one(
    task: Task, settings: Settings, tmp_path: Path
) -> None:
    other = load_settings([f"database.path={task.database_source(settings)}"])
    with pytest.raises(DatabaseFileError, match="has no table disease") as error:
        load_task(other.task).open_database(other)
    assert "sql-agent data build --lang en" in (error.value.hint or "")
    missing = load_settings([f"database.path={tmp_path / 'none.db'}", f"runs_dir={tmp_path}"])
    with pytest.raises(DatabaseFileError) as error:
        task.open_database(missing)
    assert error.value.hint == "ask the librarian"
    with pytest.raises(ConfigError, match="no val questions of the task library") as no_questions:
        task.question_file(missing, "val")
    assert no_questions.value.hint == f"give data.val_file=PATH, or ask the librarian about {tmp_path / 'none.db'}"
    with pytest.raises(ConfigError, match=r"data\.val_file=/none\.jsonl does not exist"):
        task.question_file(load_settings(["data.val_file=/none.jsonl"]), "val")


@pytest.mark.slow
def test_one_step_trains_through_the_command_line(settings: Settings, tmp_path: Path, tiny_model_folder: Path) -> None:
    process = start(
        [
            "--ci-fast", f"--model={tiny_model_folder}", f"task={LIBRARY}", f"runs_dir={settings.runs_dir}",
            f"local.cache_dir={tmp_path / 'cache'}", "run_name=r", "sft.steps=1", "sft.batch=2", "--n-runners=1",
            "agent.max_tokens=8", "train.questions_per_step=2", "train.group_size=2", "local.max_context=4096",
            "data.natural_questions=2", "train.validate_untrained=true",
        ]
    )  # fmt: skip
    output = finish(process)
    assert process.returncode == 0, output
    run = settings.runs_dir / "r"
    (step,) = lines(run / "metrics.jsonl")
    assert step["rollouts/kept"] == 4
    assert step["library/words"] >= 0
    assert "agent/refused" not in step, "what the medical task measures"
    assert [v["step"] for v in lines(run / "validation.jsonl")] == [-1, 0, 1]
    assert "Validation of the untrained model" in output
    for name in ("template", "natural"):
        measured = lines(run / "validation.jsonl")[2]
        assert measured[f"val/{name}/questions"] == measured[f"val/{name}/rollouts/kept"] == 2
        assert {f"val/{name}/{key}" for key in ("library/words", "accurate", "accurate/shelf")} <= measured.keys()
    asked = [(r["val_set"], r["record"]["question"]["database"]) for r in lines(run / "rollouts.jsonl")]
    assert sorted(set(asked), key=str) == [("natural", "branch"), ("template", None), (None, None)]
    assert "2 template and 2 natural for validation" in output
    rollouts = lines(run / "rollouts.jsonl")
    assert {r["record"]["reward"]["judge_name"] for r in rollouts} == {"exact"}
    assert {r["record"]["question"]["task_type"] for r in rollouts} == {"shelf", "reader"}
    assert list((tmp_path / "cache").glob("sft-*")), "the supervised start used the questions' SQL"
    assert (run / "report.html").exists()
    assert [session.end for session in read_sessions(run)] == ["finished"]
    assert (run / "checkpoints" / "step-000001" / "model" / "model.safetensors").exists()
    assert "Made the library" in output
    assert "Please return your books." in output


def test_a_task_in_the_working_directory_is_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "my_books.py").write_text("from tests.support.library import TASK as MINE\n", encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))
    assert load_task("my_books:MINE").name == "library"


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("medicine", "use medical, spider, ehrsql, NAME.toml of `sql-agent init`, or package.module:NAME"),
        ("", "use medical, spider, ehrsql, NAME.toml of `sql-agent init`, or package.module:NAME"),
        ("tests.support.library", "package.module:NAME"),
        ("../library:TASK", "package.module:NAME"),
        ("no.such.module:TASK", "No module named 'no'"),
        ("tests.support.library:MINE", "tests.support.library:TASK"),
        ("tests.support.library:QUESTIONS", "tests.support.library:TASK"),
        ("sql_agent.errors:TASK", "no Task"),
    ],
)
def test_a_wrong_name_says_what_there_is(name: str, said: str) -> None:
    with pytest.raises(ConfigError) as error:
        load_task(name)
    assert said in str(error.value)
