"""Ask one question and report each query, its rows and the answer while the agent runs."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from contextlib import suppress
from typing import NamedTuple

from sql_agent.chat.models import ChatModel
from sql_agent.chat.sources import AnswerSource, sources_of
from sql_agent.errors import DataError, SqlAgentError
from sql_agent.questions.question_columns import language
from sql_agent.schemas import DropCause, Lang, Outcome, QueryCall, Question

MAX_QUESTION_CHARS = 4000
_MAX_ERROR_CHARS = 400


class QuerySent(NamedTuple):
    """Reports a statement before it runs; `number` counts from 1."""

    number: int
    sql: str


class QueryAnswered(NamedTuple):
    """Reports the rows or the error of a statement that was sent."""

    number: int
    call: QueryCall


class Answered(NamedTuple):
    """Reports the end: the answer ("" without one), how the model ended, and the cells that contain the answer."""

    question: Question
    answer: str
    outcome: Outcome
    calls: tuple[QueryCall, ...]
    sources: tuple[AnswerSource, ...]
    seconds: float


class Failed(NamedTuple):
    """Reports in one line why there is no answer."""

    message: str


Event = QuerySent | QueryAnswered | Answered | Failed


async def ask(text: str, model: ChatModel) -> AsyncGenerator[Event]:
    """Yield what happens while `model` answers the question `text`; the last event is Answered or Failed.

    Closing the iterator ends the agent.
    """
    events: asyncio.Queue[Event | None] = asyncio.Queue()
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


def checked_question(text: str, lang: Lang | None) -> Question:
    """Return `text` as a question without a reference. Raises DataError when it is empty or too long."""
    text = text.strip()
    if not text:
        raise DataError("the question is empty")
    if len(text) > MAX_QUESTION_CHARS:
        raise DataError(f"the question has {len(text):,} characters", hint=f"ask it in {MAX_QUESTION_CHARS:,} or fewer")
    return Question(id="chat", question=text, answer="", lang=lang or language(text))


def one_line(error: object) -> str:
    """Return what an error says in one line of at most `_MAX_ERROR_CHARS` characters."""
    return " ".join(str(error).split())[:_MAX_ERROR_CHARS]


async def _run(text: str, model: ChatModel, events: asyncio.Queue[Event | None]) -> None:
    from agents.exceptions import AgentsException  # noqa: PLC0415  takes a second, which a page should not wait for

    try:
        events.put_nowait(await _answered(text, model, events))
    except SqlAgentError as error:
        events.put_nowait(Failed(one_line(error)))
    except AgentsException as error:  # openai-agents wraps what the tool raises, such as a database that is not reached
        cause = error.__cause__ if isinstance(error.__cause__, SqlAgentError) else error
        events.put_nowait(Failed(one_line(cause)))


async def _answered(text: str, model: ChatModel, events: asyncio.Queue[Event | None]) -> Event:
    from sql_agent.agent.rollout import run_rollout  # noqa: PLC0415  the same

    question = checked_question(text, model.lang)
    observer = _Observer(events)
    with model.databases.of(None) as database:
        record = await run_rollout(
            question, model.task, model.endpoint, database, None, model.settings, observer=observer
        )
    if record.dropped is not None and record.dropped.cause is DropCause.DATABASE:
        model.databases.forget(database)
        return Failed(one_line(f"{record.dropped.detail} (then ask again)"))
    if record.dropped is not None:
        return Failed(one_line(f"{record.dropped} ({model.name} at {model.endpoint.base_url})"))
    calls = tuple(call for _, call in sorted(observer.calls.items()))
    sources = sources_of(record.answer, question.question, calls)
    return Answered(question, record.answer, record.outcome, calls, sources, record.seconds)


class _Observer:
    """Puts what happens to the queries of one rollout into `events`, and keeps the calls by their number."""

    def __init__(self, events: asyncio.Queue[Event | None]) -> None:
        self._events = events
        self.calls: dict[int, QueryCall] = {}

    def sent(self, number: int, sql: str) -> None:
        self._events.put_nowait(QuerySent(number, sql))

    def answered(self, number: int, call: QueryCall) -> None:
        self.calls[number] = call
        self._events.put_nowait(QueryAnswered(number, call))
