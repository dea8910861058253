"""Asking many questions at once loses none: a failure passes, is recorded, or stops the evaluation."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path

import pytest

from sql_agent.agent.rollout import ask_all
from sql_agent.config.endpoints import ModelEndpoint
from sql_agent.config.settings import load_settings
from sql_agent.errors import TrainingError
from sql_agent.schemas import DropCause, Question, RolloutRecord
from sql_agent.tasks.task import load_task
from tests.support.question_server import QuestionServer, answering
from tests.support.small_database import make_database

QUESTIONS = [Question(id=f"q{i}", question=f"Which form has Drug {i}?", answer="capsule") for i in range(1, 31)]


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Iterator[QuestionServer]:
    monkeypatch.setattr("sql_agent.agent.rollout._PAUSES_S", (0.01, 0.01, None))
    with answering() as server:
        for number, question in enumerate(QUESTIONS, 1):
            sql = f"SELECT form FROM drugs_info WHERE id = {number}"
            server.knows["m", question.question] = (sql, "capsule")
        yield server


def ask(server: QuestionServer, tmp_path: Path, *, url: str | None = None) -> list[RolloutRecord]:
    settings = load_settings([f"database.path={make_database(tmp_path / 'medical.db')}", "judge.name=facts"])
    task = load_task(settings.task)
    records: list[RolloutRecord] = []
    endpoint = ModelEndpoint(url or server.url, "m", 0.0)
    with task.databases(settings) as databases:
        asyncio.run(
            ask_all(
                [("test", question) for question in QUESTIONS], task, endpoint, databases,
                task.judge(settings), settings, concurrency=8, on_record=lambda _, record: records.append(record),
            )
        )  # fmt: skip
    return records


def test_every_question_has_its_own_record_with_queries_reward_and_tokens(
    server: QuestionServer, tmp_path: Path
) -> None:
    records = ask(server, tmp_path)
    assert sorted(r.question.id for r in records) == sorted(q.id for q in QUESTIONS)
    for record in records:
        number = int(record.question.id[1:])
        assert record.calls[0].sql == f"SELECT form FROM drugs_info WHERE id = {number}"
        assert record.reward is not None and record.reward.judge == (1.0 if number % 4 == 1 else 0.05)
        assert (record.usage.prompt_tokens, record.usage.completion_tokens) == (200, 20)


def test_a_question_that_the_server_lost_once_is_asked_again(server: QuestionServer, tmp_path: Path) -> None:
    server.failing[QUESTIONS[4].question] = 1
    assert all(record.reward for record in ask(server, tmp_path))


def test_a_question_that_is_lost_again_and_again_is_recorded_with_its_reason(
    server: QuestionServer, tmp_path: Path
) -> None:
    server.failing[QUESTIONS[4].question] = 99
    records = {record.question.id: record for record in ask(server, tmp_path)}
    assert len(records) == len(QUESTIONS)
    dropped = records["q5"].dropped
    assert dropped is not None and dropped.cause is DropCause.MODEL_SERVER and "overloaded" in dropped.detail


def test_a_server_that_is_gone_stops_the_evaluation_with_what_to_do(server: QuestionServer, tmp_path: Path) -> None:
    with pytest.raises(TrainingError, match="failed on 8 questions in a row") as caught:
        ask(server, tmp_path, url="http://127.0.0.1:9/v1")
    assert "--resume" in str(caught.value.hint)
