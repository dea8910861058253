"""Serve the agent as an OpenAI-compatible endpoint: a chat completion answers the last user message."""

from __future__ import annotations

import json
import secrets
import time
from collections.abc import Mapping, Sequence
from contextlib import aclosing
from http import HTTPStatus
from typing import Any

from pydantic import BaseModel, ValidationError
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route
from starlette.types import ASGIApp

from sql_agent.chat.conversation import Answered, ChatModel, Failed, ask
from sql_agent.system.messages import first_problem
from sql_agent.system.servers import web_app


class _Message(BaseModel):
    role: str
    content: str | list[dict[str, Any]] | None = None

    @property
    def text(self) -> str:
        if isinstance(self.content, list):
            return "".join(str(part.get("text", "")) for part in self.content)
        return self.content or ""


class _Completion(BaseModel):
    """The JSON body of a request. Other parameters of OpenAI's API, such as `temperature`, are ignored."""

    messages: Sequence[_Message]
    stream: bool = False


class AgentEndpoint:
    """Answers chat completions with the agent. `name` is the model name for clients.

    The last user message is the question; all other messages are ignored. The field `sql_agent` of a response lists
    the queries with their rows.
    """

    def __init__(self, name: str, model: ChatModel) -> None:
        self._name = name
        self._model = model

    def app(self, token: str | None, host: str) -> ASGIApp:
        routes = [Route("/v1/models", self._models), Route("/v1/chat/completions", self._complete, methods=["POST"])]
        return web_app(routes, token=token, host=host)

    async def _models(self, _request: Request) -> Response:
        model = {"id": self._name, "object": "model", "owned_by": "sql-agent"}
        return JSONResponse({"object": "list", "data": [model]})

    async def _complete(self, request: Request) -> Response:
        try:
            asked = _Completion.model_validate_json(await request.body())
        except ValidationError as error:
            return _error(HTTPStatus.BAD_REQUEST, f"the request cannot be read: {first_problem(error)}")
        question = next((message.text for message in reversed(asked.messages) if message.role == "user"), "")
        if not question.strip():
            return _error(HTTPStatus.BAD_REQUEST, "the request has no user message, or the last user message is empty")
        async with aclosing(ask(question, self._model)) as events:
            *_, last = [event async for event in events]
        if not isinstance(last, Answered):
            return _error(HTTPStatus.BAD_GATEWAY, last.message if isinstance(last, Failed) else "there is no answer")
        return self._streamed(last) if asked.stream else JSONResponse(self._completion(last))

    def _completion(self, answered: Answered) -> dict[str, Any]:
        message = {"role": "assistant", "content": answered.answer}
        queries = [call.model_dump(mode="json") for call in answered.calls]
        return self._object("chat.completion", {"message": message, "finish_reason": "stop"}) | {
            "sql_agent": {"outcome": answered.outcome, "seconds": answered.seconds, "queries": queries}
        }

    def _streamed(self, answered: Answered) -> Response:
        """Return the whole answer as one chunk of a stream, because the agent does not stream answers."""
        delta = {"role": "assistant", "content": answered.answer}
        chunk = self._object("chat.completion.chunk", {"delta": delta, "finish_reason": "stop"})
        body = f"data: {json.dumps(chunk, ensure_ascii=False)}\n\ndata: [DONE]\n\n"
        return Response(body, media_type="text/event-stream")

    def _object(self, kind: str, choice: Mapping[str, Any]) -> dict[str, Any]:
        identity = {"id": f"chatcmpl-{secrets.token_hex(12)}", "object": kind, "created": int(time.time())}
        return identity | {"model": self._name, "choices": [{"index": 0, **choice}]}


def _error(status: HTTPStatus, message: str) -> Response:
    return JSONResponse({"error": {"message": message, "type": "invalid_request_error"}}, status)
