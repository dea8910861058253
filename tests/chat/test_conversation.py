"""A question reports its queries while they run; what goes wrong is one line, and the next question can be asked."""

from __future__ import annotations

import asyncio
import dataclasses
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import aclosing, contextmanager
from pathlib import Path

import pytest

from sql_agent.chat.conversation import Answered, ChatModel, ChatModels, Failed, QueryAnswered, QuerySent, ask
from tests.support.chat_page import ANSWER, FORM_SQL, QUESTION, answer_of, events_of, opened
from tests.support.processes import free_port
from tests.support.question_server import QuestionServer, answering
from tests.support.small_database import make_database


@pytest.fixture
def server() -> Iterator[QuestionServer]:
    with answering() as server:
        server.knows["m", QUESTION] = FORM_SQL, ANSWER
        yield server


@pytest.fixture
def model(server: QuestionServer, tmp_path: Path) -> Iterator[ChatModel]:
    with opened("m", server.url, make_database(tmp_path / "medical.db", rows=20)) as model:
        yield model


async def test_a_query_is_reported_before_its_rows_and_these_before_the_answer(model: ChatModel) -> None:
    sent, rows, answered = await events_of(QUESTION, model)
    assert sent == QuerySent(1, FORM_SQL)
    assert isinstance(rows, QueryAnswered) and rows.call.answer.records[0][1] == "tablet"
    assert isinstance(answered, Answered) and answered.answer == ANSWER
    assert [(s.query, s.row, s.column) for s in answered.sources] == [(1, 1, "form")]


@pytest.mark.parametrize(("text", "why"), [("  ", "empty"), ("a" * 4001, "4,001 characters (4,000 are allowed")])
async def test_an_empty_or_too_long_question_is_refused_in_a_line(model: ChatModel, text: str, why: str) -> None:
    (failed,) = await events_of(text, model)
    assert isinstance(failed, Failed) and why in failed.message and len(failed.message) < 400


async def test_an_endpoint_that_is_down_is_named_in_a_line(tmp_path: Path) -> None:
    url = f"http://127.0.0.1:{free_port()}/v1"
    with opened("gone", url, make_database(tmp_path / "medical.db", rows=5)) as model:
        (failed,) = await events_of(QUESTION, model)
    assert isinstance(failed, Failed)
    assert failed.message.startswith("the model's server failed") and f"gone at {url}" in failed.message
    assert "\n" not in failed.message


async def test_after_the_database_was_gone_the_next_question_opens_it_anew(model: ChatModel, tmp_path: Path) -> None:
    path = tmp_path / "medical.db"
    await answer_of(QUESTION, model)
    path.unlink()
    failed = (await events_of(QUESTION, model))[-1]
    assert isinstance(failed, Failed) and f"{path} is gone" in failed.message
    failed = (await events_of(QUESTION, model))[-1]
    assert isinstance(failed, Failed) and str(path) in failed.message
    make_database(path, rows=20)
    assert (await answer_of(QUESTION, model)).answer == ANSWER


async def test_leaving_ends_the_agent(server: QuestionServer, model: ChatModel) -> None:
    async with aclosing(ask(QUESTION, model)) as events:
        assert isinstance(await anext(events), QuerySent)
    await asyncio.sleep(0.3)
    assert server.asked[QUESTION] == 0, "the model is not asked for an answer any more"


async def test_what_nobody_foresaw_is_raised_and_does_not_hang(model: ChatModel) -> None:
    with pytest.raises(AttributeError):
        await events_of(QUESTION, dataclasses.replace(model, task=None))  # type: ignore[arg-type]


def test_a_model_that_is_open_is_not_held_up_while_another_is_opened(server: QuestionServer, tmp_path: Path) -> None:
    path = make_database(tmp_path / "medical.db", rows=5)
    is_opening, may_open = threading.Event(), threading.Event()

    @contextmanager
    def open_model(name: str) -> Iterator[ChatModel]:
        if name == "slow":
            is_opening.set()
            assert may_open.wait(20)
        with opened(name, server.url, path) as model:
            yield model

    models = ChatModels(open_model)
    first = models.get("a")
    with ThreadPoolExecutor(1) as thread:
        slow = thread.submit(models.get, "slow")
        assert is_opening.wait(20)
        assert models.get("a") is first
        may_open.set()
        slow.result(20)
    models.close()


def test_each_model_is_opened_once_and_closed_at_the_end(server: QuestionServer, tmp_path: Path) -> None:
    seen: list[str] = []
    path = make_database(tmp_path / "medical.db", rows=5)

    @contextmanager
    def open_model(name: str) -> Iterator[ChatModel]:
        seen.append(f"open {name}")
        with opened(name, server.url, path) as model:
            yield model
        seen.append(f"close {name}")

    models = ChatModels(open_model)
    for name in ("a", "b", "a", "c"):
        assert models.get(name).name == name
    assert seen == ["open a", "open b", "open c"]
    models.close()
    assert sorted(seen[3:]) == ["close a", "close b", "close c"]
