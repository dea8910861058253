"""An OpenAI client asks the agent, which queries the database and answers."""

from __future__ import annotations

from collections.abc import Iterator

import httpx
import pytest
from openai import AuthenticationError, BadRequestError, OpenAI
from openai.types.chat import ChatCompletionMessageParam

from sql_agent.chat.endpoint import AgentEndpoint
from tests.support.chat_page import ANSWER, FORM_SQL, QUESTION, TOKEN, opened
from tests.support.question_server import answering
from tests.support.served_app import served_app
from tests.support.small_database import make_database

ASKED: list[ChatCompletionMessageParam] = [
    {"role": "system", "content": "Be brief."},
    {"role": "user", "content": QUESTION},
]


@pytest.fixture(scope="module")
def url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    database = make_database(tmp_path_factory.mktemp("endpoint") / "medical.db", rows=10)
    with answering() as server, opened("new", server.url, database) as model:
        server.knows["new", QUESTION] = FORM_SQL, ANSWER
        with served_app(AgentEndpoint("new", model).app(TOKEN, "127.0.0.1")) as url:
            yield url


@pytest.fixture
def client(url: str) -> Iterator[OpenAI]:
    with OpenAI(base_url=f"{url}v1", api_key=TOKEN, max_retries=0) as client:
        yield client


def test_a_completion_is_the_answer_with_the_queries_behind_it(client: OpenAI, url: str) -> None:
    assert [model.id for model in client.models.list()] == ["new"]
    answered = client.chat.completions.create(model="new", messages=ASKED)
    assert answered.choices[0].message.content == ANSWER
    body = {"model": "new", "messages": ASKED}
    raw = httpx.post(f"{url}v1/chat/completions", json=body, headers={"Authorization": f"Bearer {TOKEN}"}).json()
    assert raw["sql_agent"]["queries"][0]["sql"] == FORM_SQL


def test_a_client_that_streams_gets_the_answer_too(client: OpenAI) -> None:
    with client.chat.completions.create(model="new", messages=ASKED, stream=True) as stream:
        assert "".join(chunk.choices[0].delta.content or "" for chunk in stream) == ANSWER


def test_a_wrong_key_and_an_empty_question_are_refused(client: OpenAI) -> None:
    with pytest.raises(AuthenticationError):
        client.with_options(api_key="wrong").models.list()
    with pytest.raises(BadRequestError, match="the last user message is empty"):
        client.chat.completions.create(model="new", messages=[{"role": "user", "content": " "}])
