"""Rated and corrected answers become a question file that training reads, checks and grades as its own."""

from __future__ import annotations

import asyncio
import io
import json
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from rich.console import Console

from sql_agent.chat.conversation import Answered
from sql_agent.chat.ratings import RatingsFolder
from sql_agent.cli.train import parse_arguments
from sql_agent.cli.train_plan import Plan, check_questions_of, plan_settings
from sql_agent.errors import DataError
from sql_agent.runs.console import Ui
from sql_agent.tasks.medical.medical_task import TASK
from tests.support.chat_page import ANSWER, FORM_SQL, QUESTION, answer_of, opened
from tests.support.processes import lines
from tests.support.question_server import answering
from tests.support.small_database import make_database

OTHER = "哪种药治疗 Disease 3？"
OTHER_SQL = "SELECT med_name FROM drugs_info WHERE indication LIKE 'Disease 3;%' LIMIT 1"


@pytest.fixture(scope="module")
def database(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_database(tmp_path_factory.mktemp("chat") / "medical.db", rows=20)


@pytest.fixture(scope="module")
def answers(database: Path) -> dict[str, Answered]:
    """What a model answered, by question."""
    with answering() as server, opened("m", server.url, database) as model:
        server.knows["m", QUESTION] = FORM_SQL, ANSWER
        server.knows["m", OTHER] = OTHER_SQL, "Drug 9"
        return {text: asyncio.run(answer_of(text, model)) for text in (QUESTION, OTHER, "Who?")}


@pytest.fixture
def kept(tmp_path: Path) -> RatingsFolder:
    return RatingsFolder(tmp_path / "chat")


def test_training_loads_checks_and_grades_what_was_rated_right_and_corrected(
    kept: RatingsFolder, answers: dict[str, Answered], database: Path
) -> None:
    kept.rate("m", answers[QUESTION], "up")
    kept.rate("m", answers[OTHER], "corrected", " Drug 3 ")
    kept.rate("m", answers["Who?"], "down")
    arguments = ["--train-file", str(kept.questions), "--val-file", str(kept.questions), f"database.path={database}"]
    settings, _ = plan_settings(parse_arguments(arguments))
    questions = TASK.questions(settings, "train")
    assert [(q.question, q.answer, q.lang, q.sql) for q in questions] == [
        (QUESTION, ANSWER, "en", FORM_SQL),
        (OTHER, "Drug 3", "zh", OTHER_SQL),
    ]
    console = Console(file=io.StringIO(), width=200)
    val = {"template": TASK.questions(settings, "val")}
    check_questions_of(Plan(settings, TASK, questions, val, TASK.judge(settings)), Ui(console))
    assert isinstance(console.file, io.StringIO)
    assert "4 of 4 gold queries return rows; the references earn 1.00 of 1.0" in console.file.getvalue()
    row = lines(kept.questions)[1]
    assert (row["model"], row["rating"]) == ("m", "corrected")
    assert row["time"].endswith("Z")


def test_the_last_rating_of_an_answer_counts_and_a_correction_goes_before_praise(
    kept: RatingsFolder, answers: dict[str, Answered]
) -> None:
    def references() -> list[str]:
        return [row["answer"] for row in lines(kept.questions)]

    answered = answers[QUESTION]
    kept.rate("a", answered, "up")
    assert references() == [ANSWER]
    kept.rate("a", answered, "down")
    assert references() == [] and not kept.questions.exists(), "an empty file is none that training takes"
    kept.rate("a", answered, "corrected", "film-coated tablet")
    kept.rate("b", answered, "up")
    assert references() == ["film-coated tablet"]
    assert lines(kept.questions)[0]["sql"] is None, "no row that was read holds all of it"
    kept.rate("a", answered, "withdrawn")
    assert references() == [ANSWER]
    assert [line["rating"] for line in lines(kept.path / "ratings.jsonl")] == [
        "up", "down", "corrected", "up", "withdrawn",
    ]  # fmt: skip


def test_no_answer_can_be_right_and_no_correction_empty(kept: RatingsFolder, answers: dict[str, Answered]) -> None:
    with pytest.raises(DataError, match="no answer"):
        kept.rate("m", answers[QUESTION]._replace(answer=""), "up")
    with pytest.raises(DataError, match="correction is empty"):
        kept.rate("m", answers[QUESTION], "corrected", " \n")
    assert not kept.path.exists()


def test_a_folder_that_cannot_be_written_is_said_so(tmp_path: Path, answers: dict[str, Answered]) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(DataError, match="could not write into"):
        RatingsFolder(tmp_path / "file" / "chat").rate("m", answers[QUESTION], "up")


def test_ratings_of_several_writers_are_all_kept_also_after_a_line_that_was_cut_off(
    kept: RatingsFolder, answers: dict[str, Answered]
) -> None:
    kept.rate("m", answers[OTHER], "up")
    log = kept.path / "ratings.jsonl"
    with log.open("a", encoding="utf-8") as file:
        file.write('{"time": "2026-')
    with ThreadPoolExecutor(4) as threads:
        list(threads.map(lambda n: RatingsFolder(kept.path).rate(f"m{n}", answers[QUESTION], "up"), range(8)))
    assert len(log.read_text(encoding="utf-8").splitlines()) == 9
    assert len(lines(kept.questions)) == 2


def test_nothing_but_the_rated_answer_and_who_gave_it_is_kept(
    kept: RatingsFolder, answers: dict[str, Answered]
) -> None:
    kept.rate("m", answers[QUESTION], "up")
    (line,) = (kept.path / "ratings.jsonl").read_text(encoding="utf-8").splitlines()
    assert set(json.loads(line)) == {"time", "model", "rating", "question", "lang", "answer", "reference", "sql"}
