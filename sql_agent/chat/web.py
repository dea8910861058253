"""Serve the chat page, stream the events of a question as JSON lines, and store ratings."""

from __future__ import annotations

import asyncio
import json
import secrets
from collections import OrderedDict
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import aclosing
from typing import Any

from pydantic import ValidationError
from starlette.requests import Request
from starlette.responses import JSONResponse, Response, StreamingResponse
from starlette.routing import Route
from starlette.types import ASGIApp

from sql_agent.chat.conversation import (
    MAX_QUESTION_CHARS,
    Answered,
    ChatModels,
    Failed,
    QueryAnswered,
    QuerySent,
    ask,
    one_line,
    run_statement,
)
from sql_agent.chat.ratings import Mark, RatingsFolder
from sql_agent.errors import DataError, SqlAgentError
from sql_agent.runs.pages import MESSAGES, asset, dictionary, page_response, render_template
from sql_agent.schemas import Record
from sql_agent.system.messages import first_problem
from sql_agent.system.servers import web_app

_PACKAGE = "sql_agent.chat"
_RATEABLE = 500  # number of newest answers in memory; older answers cannot be rated
_KINDS: dict[type, str] = {QuerySent: "sent", QueryAnswered: "rows", Answered: "answer", Failed: "failed"}


class _Asked(Record):
    model: str
    question: str


class _Rated(Record):
    """The JSON body of POST /rate; `answer` is an answer's id."""

    answer: str
    rating: Mark
    correction: str = ""


class _Statement(Record):
    """The JSON body of POST /run: SQL that a person runs in order to correct the answer with the id `answer`."""

    answer: str
    sql: str


class ChatPage:
    """Serves the chat page. Users choose among the models `known`; `names` are selected at first."""

    def __init__(  # noqa: PLR0917  the contents of the page, from the top down
        self,
        models: ChatModels,
        names: Sequence[str],
        known: Sequence[str],
        kept: RatingsFolder,
        disclaimer: str,
        examples: Sequence[str],
    ) -> None:
        self._models = models
        self._known = list(known)
        self._first = names[0]
        self._kept = kept
        self._answers: OrderedDict[str, tuple[str, Answered]] = OrderedDict()
        self._disclaimer = disclaimer
        self._state = {
            "models": self._known,
            "chosen": list(names),
            "examples": list(examples),
            "ratings": str(kept.path),
            "messages": MESSAGES,
            "longest": MAX_QUESTION_CHARS,
        }

    def app(self, token: str | None, host: str) -> ASGIApp:
        routes = [
            Route("/", self._get_page),
            Route("/state", self._get_state),
            *(
                Route(path, _refusing(answer), methods=["POST"])
                for path, answer in (("/ask", self._ask), ("/rate", self._rate), ("/run", self._run))
            ),
        ]
        return web_app(routes, token=token, host=host)

    async def _get_page(self, _request: Request) -> Response:
        return page_response(self._render)

    def _render(self, nonce: str) -> str:
        """Return the HTML of the page. A script loads all content except the disclaimer from the server."""
        return render_template(
            "chat.html.j2",
            _PACKAGE,
            nonce=nonce,
            disclaimer=self._disclaimer,
            styles=[asset("page.css"), asset("chat.css", _PACKAGE)],
            scripts=[
                *(asset(f"{name}.js") for name in ("text", "access", "rollout")),
                *(asset(f"{name}.js", _PACKAGE) for name in ("reply", "chat")),
            ],
            chinese=dictionary(json.loads(asset("zh.json", _PACKAGE))),
        )

    async def _get_state(self, _request: Request) -> Response:
        model = await asyncio.to_thread(self._models.get, self._first)
        with model.databases.of(None) as database:
            tables = [[table, ", ".join(columns)] for table, columns in database.schema.tables]
            return JSONResponse({**self._state, "database": str(database.source), "tables": tables})

    async def _ask(self, request: Request) -> Response:
        asked = _Asked.model_validate_json(await request.body())
        if asked.model not in self._known:
            raise DataError(f"the model {asked.model!r} is not offered", hint="restart the server with this MODEL")
        return StreamingResponse(self._events(asked), media_type="application/x-ndjson")

    async def _events(self, asked: _Asked) -> AsyncIterator[str]:
        """Yield a JSON line for each event. If the client disconnects, the agent is cancelled."""
        if not self._models.is_open(asked.model):
            yield _line("loading")
        try:  # a thread finishes opening the model even if the client disconnects
            model = await asyncio.to_thread(self._models.get, asked.model)
        except SqlAgentError as error:
            yield _line("failed", message=one_line(error))
            return
        async with aclosing(ask(asked.question, model)) as events:
            async for event in events:
                values = event._asdict()
                if isinstance(event, Answered):
                    values = {"id": self._kept_answer(asked.model, event), **values}
                    del values["question"], values["calls"]  # the page has them
                yield _line(_KINDS[type(event)], **values)

    def _kept_answer(self, model: str, answered: Answered) -> str:
        key = secrets.token_hex(8)
        self._answers[key] = model, answered
        while len(self._answers) > _RATEABLE:
            self._answers.popitem(last=False)
        return key

    async def _run(self, request: Request) -> Response:
        """Run a user's SQL and add the call to the answer, so that a correction can cite the rows."""
        written = _Statement.model_validate_json(await request.body())
        name, answered = self._answered(written.answer)
        model = await asyncio.to_thread(self._models.get, name)
        call = await run_statement(written.sql, model)
        self._answers[written.answer] = name, answered.with_call(call)
        return JSONResponse({"call": call.model_dump(mode="json")})

    def _answered(self, key: str) -> tuple[str, Answered]:
        if key not in self._answers:
            raise DataError("this answer is too old to be rated", hint="ask again")
        return self._answers[key]

    async def _rate(self, request: Request) -> Response:
        rated = _Rated.model_validate_json(await request.body())
        model, answered = self._answered(rated.answer)
        await asyncio.to_thread(self._kept.rate, model, answered, rated.rating, rated.correction)
        return JSONResponse({"kept": str(self._kept.path)})


def _refusing(answer: Callable[[Request], Awaitable[Response]]) -> Callable[[Request], Awaitable[Response]]:
    """Wrap `answer`: a ValidationError or a SqlAgentError becomes a response with status 400 and a message."""

    async def answer_or_refuse(request: Request) -> Response:
        try:
            return await answer(request)
        except ValidationError as error:
            return JSONResponse({"message": f"the request cannot be read: {first_problem(error)}"}, 400)
        except SqlAgentError as error:
            return JSONResponse({"message": one_line(error)}, 400)

    return answer_or_refuse


def _line(kind: str, **values: Any) -> str:
    return json.dumps({"kind": kind, **values}, ensure_ascii=False, default=lambda v: v.model_dump(mode="json")) + "\n"
