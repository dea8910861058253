"""A conversation over a small database with models that a test scripts, in this process."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

from sql_agent.chat.conversation import Answered, ChatModel, ChatModels, Event, ask
from sql_agent.chat.ratings import RatingsFolder
from sql_agent.chat.web import ChatPage
from sql_agent.config.endpoints import ModelEndpoint
from sql_agent.config.settings import load_settings
from sql_agent.tasks.medical.medical_task import TASK
from tests.support.served_app import served_app

QUESTION = "Which form has Drug 4?"
FORM_SQL = "SELECT med_name, form, indication FROM drugs_info WHERE med_name = 'Drug 4'"
ANSWER = "tablet"
TOKEN = "the-token"


@contextmanager
def opened(name: str, base_url: str, database: Path) -> Iterator[ChatModel]:
    """Open a model that answers at `base_url`."""
    settings = load_settings([f"database.path={database}"])
    endpoint = ModelEndpoint(base_url, name, 0.0)
    with TASK.databases(settings) as databases:
        yield ChatModel(name, TASK, settings, endpoint, databases)


async def events_of(text: str, model: ChatModel) -> list[Event]:
    return [event async for event in ask(text, model)]


async def answer_of(text: str, model: ChatModel) -> Answered:
    last = (await events_of(text, model))[-1]
    assert isinstance(last, Answered), last
    return last


@contextmanager
def chat_page(
    base_url: str, database: Path, kept: Path, *, names: list[str], known: list[str], token: str | None = TOKEN
) -> Iterator[str]:
    """Serve the page inside the context; yields its address."""
    with closing(ChatModels(lambda name: opened(name, base_url, database))) as models:
        page = ChatPage(models, names, known, RatingsFolder(kept), TASK.disclaimer, [QUESTION])
        with served_app(page.app(token, "127.0.0.1")) as url:
            yield url
