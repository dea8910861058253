"""`sql-agent chat` in a terminal: questions, commands, ratings, Ctrl-C, and what is refused before it starts."""

from __future__ import annotations

import io
import os
import pty
import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

import httpx
import pytest

from sql_agent.cli.chat import main
from sql_agent.cli.command import run_command
from sql_agent.cli.model_choice import ChosenModel, known_models
from sql_agent.config.endpoints import ModelEndpoint
from sql_agent.config.settings import load_settings
from sql_agent.system.servers import bind
from tests.support.chat_page import ANSWER, FORM_SQL, QUESTION
from tests.support.processes import MAIN, finish, lines, start, wait_for
from tests.support.question_server import QuestionServer, answering
from tests.support.small_database import make_database

SLOW_Q = "A slow one?"


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Iterator[QuestionServer]:
    """Two models behind OPENAI_API_BASE."""
    with answering() as server:
        monkeypatch.setenv("OPENAI_API_BASE", server.url)
        monkeypatch.delenv("OPENAI_MODEL", raising=False)
        monkeypatch.delenv("CHAT_TOKEN", raising=False)
        monkeypatch.delenv("COLUMNS", raising=False)
        server.knows["new", QUESTION] = FORM_SQL, ANSWER
        server.knows["old", QUESTION] = "SELECT nothing", "capsule\x1b[2J"
        yield server


@pytest.fixture
def arguments(tmp_path: Path) -> list[str]:
    database = make_database(tmp_path / "medical.db", rows=20)
    return [f"database.path={database}", f"runs_dir={tmp_path / 'runs'}"]


def typed(monkeypatch: pytest.MonkeyPatch, *typed_lines: str) -> None:
    monkeypatch.setattr(sys, "stdin", io.StringIO("\n".join(typed_lines) + "\n"))


def test_a_statement_of_a_person_corrects_an_answer_and_a_follow_up_has_its_question(
    server: QuestionServer,
    arguments: list[str],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    server.knows["new", f"{QUESTION}\nAnd now?"] = FORM_SQL, "capsule"
    sql = "SELECT form FROM drugs_info WHERE med_name = 'Drug 5'"
    typed(monkeypatch, "/sql SELECT 1", QUESTION, "/and And now?", f"/sql {sql}", "/correct tablet")
    assert main(["new", *arguments]) == 0
    output = capsys.readouterr().out
    assert "there is no answer to correct" in output and "Query 2" in output
    (row,) = lines(tmp_path / "runs/chat/questions.jsonl")
    assert row["question"] == f"{QUESTION}\nAnd now?"


def test_what_a_model_thinks_is_counted_and_shown_on_demand(
    server: QuestionServer, arguments: list[str], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    server.thoughts[QUESTION] = "The question is about the form."
    typed(monkeypatch, "/thoughts", QUESTION, "/thoughts")
    assert main(["new", *arguments]) == 0
    before, after = capsys.readouterr().out.split("/thoughts shows them")
    assert "the last answers have no thoughts" in before and "about the form" not in before
    assert after.count("Thought    The question is about the form.") == 2


def test_queries_rows_answers_and_sources_are_shown_and_ratings_kept(
    server: QuestionServer,
    arguments: list[str],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    typed(monkeypatch, QUESTION, "/up 1", "/down 2", "/nope", "/up", "/up 3", "/model new", QUESTION,
          "/correct film; tablet", "/model /none/at/all extra more", "/models", "/help", "/quit",
          "never read")  # fmt: skip
    assert main(["new", "old", *arguments]) == 0
    output = capsys.readouterr().out
    assert output.startswith("Chat with new and old\nFor research on retrieval, not medical advice.\n")
    shown = " ".join(output.split())
    assert f"Query 1 {FORM_SQL}" in shown.replace(" indication FROM", " indication FROM")
    assert "Sources tablet (query 1, row 1, form)" in shown
    assert "Error" in shown and "no row contains a text of the answer" in shown
    assert re.search(r"┃ new +┃ old +┃", output) and re.search(r"│ tablet +│ capsule \[2J +│", output)
    assert "\x1b" not in output, "an escape sequence of a model would act on the terminal"
    assert "error: there is no command /nope (/help lists the commands)" in shown
    assert "two models answered, and the rating names neither (/up 1 or /up 2)" in shown
    assert "error: there is no answer 3 (/up 1 or /up 2)" in shown
    assert "error: /model takes one name, or two" in shown
    assert "new (asked now)" in shown and "/correct FACTS" in shown
    assert server.asked[QUESTION] == 3
    ratings = lines(tmp_path / "runs" / "chat" / "ratings.jsonl")
    assert [(r["model"], r["rating"]) for r in ratings] == [("new", "up"), ("old", "down"), ("new", "corrected")]
    (question,) = lines(tmp_path / "runs" / "chat" / "questions.jsonl")
    assert (question["answer"], question["sql"]) == ("film; tablet", None)


def test_a_known_name_with_spaces_is_one_name(
    server: QuestionServer, arguments: list[str], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    server.knows["two words", QUESTION] = FORM_SQL, ANSWER
    monkeypatch.setenv("OPENAI_MODEL", "two words")
    typed(monkeypatch, "/model two words", QUESTION)
    assert main([*arguments]) == 0
    output = capsys.readouterr().out
    assert output.startswith("Chat with two words\n")
    assert "Now asking two words" in output and f"Answer     {ANSWER}" in output


def test_the_page_offers_questions_of_the_run_that_trained_the_model(
    server: QuestionServer, arguments: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    val = tmp_path / "val.jsonl"
    val.write_text('{"id": "1", "question": "What is Drug 3 for?", "answer": "pain"}\n', encoding="utf-8")
    settings = load_settings([*arguments, f"data.val_file={val}"])
    model = ChosenModel("run", settings, ModelEndpoint(server.url, "new", 0.0))
    offered: list[Sequence[str]] = []
    monkeypatch.setattr("sql_agent.cli.chat.find_model", lambda *_: model)
    monkeypatch.setattr("sql_agent.cli.chat.ChatPage", lambda *parts: offered.append(parts[-1]))
    monkeypatch.setattr("sql_agent.cli.chat._serve", lambda *_: None)
    assert main(["run", "--web", *arguments]) == 0
    assert offered == [["What is Drug 3 for?"]]


def test_a_server_that_fails_is_a_line_and_the_conversation_goes_on(
    server: QuestionServer, arguments: list[str], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    server.failing[QUESTION] = 1
    typed(monkeypatch, QUESTION, "/up", "x" * 5000, QUESTION)
    assert main(["new", *arguments]) == 0
    output = capsys.readouterr().out
    assert "Failed     the model's server failed" in output
    assert "error: there is no answer to rate (ask a question first)" in output
    assert "the question has 5,000 characters" in output
    assert f"Answer     {ANSWER}" in output


@pytest.mark.parametrize(
    ("words", "why"),
    [
        ([], "no model is named"),
        (["a", "b", "c"], "3 models are named"),
        (["new", "--no-token"], "need --web"),
        (["new", "--web", "--no-token", "--address", "0.0.0.0:8765"], "only this machine"),
        (["new", "--web", "--address", "here"], "not PORT or HOST:PORT"),
        (["new", "database.path=/none.db"], "/none.db"),
        (["new", "agent.max_turn=3"], "max_turn"),
        (["new", "--ratings", __file__], "cannot write to --ratings="),
    ],
)
def test_what_is_wrong_on_the_command_line_is_exit_code_2(
    server: QuestionServer, arguments: list[str], words: list[str], why: str, capsys: pytest.CaptureFixture[str]
) -> None:
    try:
        code = run_command("chat", [*arguments, *words])
    except SystemExit as exit_:
        code = int(exit_.code or 0)
    error = capsys.readouterr().err
    assert code == 2
    assert why in error and "Traceback" not in error


def test_a_taken_port_is_exit_code_2(
    server: QuestionServer, arguments: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    with bind() as taken:
        taken.listen()
        port = taken.getsockname()[1]
        assert run_command("chat", ["new", "--web", "--address", str(port), *arguments]) == 2
    assert f"port {port} is taken" in capsys.readouterr().err


def test_runs_are_offered_with_their_checkpoints_the_latest_first(tmp_path: Path) -> None:
    for name, steps in (
        ("night", ("step-000010", "step-000002", "step-000002-backup", "step-000005.partial")),
        ("gpu", ("global_step_9", "global_step_10", "global_step_10_old")),
    ):
        for step in steps:
            (tmp_path / name / "checkpoints" / step).mkdir(parents=True)
            (tmp_path / name / "checkpoints" / step / "state.json").touch()
        (tmp_path / name / "config.json").write_text('{"task": "medical", "runs_dir": "runs"}', encoding="utf-8")
    (tmp_path / "night" / "checkpoints" / "step-000011").mkdir()  # not whole yet
    os.utime(tmp_path / "night", (1, 1))
    (tmp_path / "eval-1").mkdir()
    checkpoints = {name: tmp_path / name / "checkpoints" for name in ("night", "gpu")}
    assert known_models(tmp_path) == [
        "gpu", str(checkpoints["gpu"] / "global_step_10"), str(checkpoints["gpu"] / "global_step_9"),
        "night", str(checkpoints["night"] / "step-000010"), str(checkpoints["night"] / "step-000002"),
    ]  # fmt: skip


@pytest.mark.slow
def test_in_a_terminal_ctrl_c_ends_a_question_and_a_second_one_the_program(
    server: QuestionServer, arguments: list[str]
) -> None:
    controlling, terminal = pty.openpty()
    command = [sys.executable, "-m", "sql_agent", "chat", "new", *arguments]
    process = subprocess.Popen(command, stdin=terminal, stdout=terminal, stderr=terminal, start_new_session=True)
    os.close(terminal)
    output = ""

    def read_until(text: str) -> None:
        nonlocal output
        deadline = time.monotonic() + 120
        while text not in output:
            assert time.monotonic() < deadline, output
            output += os.read(controlling, 4096).decode(errors="replace")

    read_until("\n> ")
    os.write(controlling, f"{QUESTION}\n".encode())
    read_until("Sources")
    server.delay_s = 30.0
    os.write(controlling, f"{SLOW_Q}\n".encode())
    read_until("Asking new")
    time.sleep(0.5)
    process.send_signal(signal.SIGINT)
    read_until("Stopped. Ctrl-C again ends the program.\r\n\r\n> ")
    time.sleep(0.5)  # a signal in the moment between the prompt and its wait for a key is noticed at the next key only
    process.send_signal(signal.SIGINT)
    assert process.wait(30) == 0
    with pytest.raises(OSError):
        while chunk := os.read(controlling, 4096):
            output += chunk.decode(errors="replace")
    os.close(controlling)
    assert "Traceback" not in output and ANSWER in output


@pytest.mark.slow
def test_the_page_is_served_until_it_is_interrupted_and_logs_no_request(
    server: QuestionServer, arguments: list[str]
) -> None:
    process = start(["chat", "new", "--web", *arguments], script=MAIN)
    wait_for(lambda: process.printed().count("\n") == 4, process)
    output = process.printed().splitlines()
    url, _, token = output[2].strip().partition("#token=")
    assert "not medical advice" in output[1] and url.startswith("http://127.0.0.1:")
    assert httpx.get(f"{url}state").status_code == 401
    answered = httpx.post(
        f"{url}ask", json={"model": "new", "question": QUESTION}, headers={"Authorization": f"Bearer {token}"}
    )
    assert f'"answer": "{ANSWER}"' in answered.text
    process.send_signal(signal.SIGINT)
    assert finish(process, timeout=30).splitlines() == output
    assert process.returncode == 0
