"""Open models, ask a model a question, and yield queries, rows and the answer as events while the agent runs."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncGenerator, Callable
from contextlib import AbstractContextManager, ExitStack, suppress
from dataclasses import dataclass
from typing import NamedTuple

from sql_agent.chat.citations import Citation, find_citations
from sql_agent.config.endpoints import ModelEndpoint
from sql_agent.config.settings import Settings
from sql_agent.database import DatabasePool
from sql_agent.errors import DataError, SqlAgentError
from sql_agent.questions.question_columns import language
from sql_agent.schemas import DropCause, Lang, Outcome, QueryCall, Question
from sql_agent.tasks.task import Task

MOST_ASKED = 2  # maximum number of models that answer a question side by side
MAX_QUESTION_CHARS = 4000
_MAX_ERROR_CHARS = 400


@dataclass(frozen=True)
class ChatModel:
    """A model that is ready to answer, with its task, settings, endpoint and databases; users see its `name`.

    `lang` is the language of the prompts; with None, each prompt is in the language of its question.
    """

    name: str
    task: Task
    settings: Settings
    endpoint: ModelEndpoint
    databases: DatabasePool
    lang: Lang | None = None


class ChatModels:
    """Opens each model on first use, and keeps it open until `close`; thread-safe.

    While a model is being opened, which may take minutes, the open models can be asked.
    """

    def __init__(self, open_model: Callable[[str], AbstractContextManager[ChatModel]]) -> None:
        self._open_model = open_model
        self._opened: dict[str, ChatModel] = {}
        self._contexts = ExitStack()
        self._opening = threading.Lock()

    def is_open(self, name: str) -> bool:
        return name in self._opened

    def get(self, name: str) -> ChatModel:
        if name not in self._opened:
            with self._opening:
                if name not in self._opened:  # another thread may have opened the model meanwhile
                    self._opened[name] = self._contexts.enter_context(self._open_model(name))
        return self._opened[name]

    def close(self) -> None:
        """Close all models; wait for a model that is being opened."""
        with self._opening:
            self._contexts.close()


class QuerySent(NamedTuple):
    """A query before it runs. Queries are numbered from 1."""

    number: int
    sql: str


class QueryAnswered(NamedTuple):
    number: int
    call: QueryCall


class Answered(NamedTuple):
    """The answer to a question ("" if there is none), and the cells that contain passages of the answer.

    `unreadable` is the malformed tool call that the model wrote instead of an answer. `thoughts` is the model's
    reasoning: one text for each reply with reasoning.
    """

    question: Question
    answer: str
    outcome: Outcome
    calls: tuple[QueryCall, ...]
    sources: tuple[Citation, ...]
    seconds: float
    unreadable: str = ""
    thoughts: tuple[str, ...] = ()

    def with_call(self, call: QueryCall) -> Answered:
        """Return this answer with one more query, run by a person, so that a correction can cite the query's rows."""
        return self._replace(calls=(*self.calls, call))


class Failed(NamedTuple):
    """A message on one line that says why there is no answer."""

    message: str


Event = QuerySent | QueryAnswered | Answered | Failed
_Events = asyncio.Queue[Event | None]  # None is the end


async def ask(text: str, model: ChatModel) -> AsyncGenerator[Event]:
    """Yield events while `model` answers the question `text`; the last event is Answered or Failed.

    Closing the generator cancels the agent.
    """
    events: _Events = asyncio.Queue()
    task = asyncio.create_task(_run(text, model, events))
    task.add_done_callback(lambda _: events.put_nowait(None))
    try:
        while (event := await events.get()) is not None:
            yield event
        await task  # raises an unexpected error of the agent
    finally:
        task.cancel()
        with suppress(asyncio.CancelledError):
            await task


async def run_statement(sql: str, model: ChatModel) -> QueryCall:
    """Run a person's statement on the database of `model`, with the limits and hints of the agent's tool."""
    from sql_agent.agent.tools import QueryTool  # noqa: PLC0415  slow to import

    with model.databases.of(None) as database:
        tool = QueryTool(database)
        await tool(sql)
    return tool.calls[0]


def one_line(error: object) -> str:
    return " ".join(str(error).split())[:_MAX_ERROR_CHARS]


async def _run(text: str, model: ChatModel, events: _Events) -> None:
    from agents.exceptions import AgentsException  # noqa: PLC0415  slow to import

    try:
        events.put_nowait(await _answered(text, model, events))
    except (SqlAgentError, AgentsException) as error:
        # openai-agents wraps the errors of the tool, such as an unreachable database.
        cause = error.__cause__ if isinstance(error.__cause__, SqlAgentError) else error
        events.put_nowait(Failed(one_line(cause)))


async def _answered(text: str, model: ChatModel, events: _Events) -> Event:
    from sql_agent.agent.rollout import run_rollout  # noqa: PLC0415  slow to import

    text = text.strip()
    if not text:
        raise DataError("the question is empty", hint="type a question")
    if len(text) > MAX_QUESTION_CHARS:
        raise DataError(f"the question has {len(text):,} characters", hint=f"{MAX_QUESTION_CHARS:,} are allowed")
    question = Question(id="chat", question=text, answer="", lang=model.lang or language(text))
    observer = _Observer(events)
    with model.databases.of(None) as database:
        record = await run_rollout(
            question, model.task, model.endpoint, database, None, model.settings, observer=observer
        )
    if (drop := record.dropped) is not None:
        if drop.cause is not DropCause.DATABASE:
            return Failed(one_line(f"{drop} ({model.name} at {model.endpoint.base_url})"))
        model.databases.forget(database)
        return Failed(one_line(f"{drop.detail} (then ask again)"))
    calls = tuple(call for _, call in sorted(observer.calls.items()))
    unreadable = record.answer if record.outcome is Outcome.MALFORMED_CALL else ""
    answer = "" if unreadable else record.answer
    sources = find_citations(answer, question.question, calls)
    thoughts = tuple(reply.reasoning for reply in record.replies if reply.reasoning)
    return Answered(question, answer, record.outcome, calls, sources, record.seconds, unreadable, thoughts)


class _Observer:
    """Puts the queries of a rollout and their results into `events`; `calls` are keyed by number."""

    def __init__(self, events: _Events) -> None:
        self._events = events
        self.calls: dict[int, QueryCall] = {}

    def sent(self, number: int, sql: str) -> None:
        self._events.put_nowait(QuerySent(number, sql))

    def answered(self, number: int, call: QueryCall) -> None:
        self.calls[number] = call
        self._events.put_nowait(QueryAnswered(number, call))
