"""Serve a policy on an OpenAI-compatible endpoint; replies have the exact token ids and log-probabilities."""

from __future__ import annotations

import asyncio
import socket
import threading
import time
import uuid
from collections.abc import Coroutine
from dataclasses import dataclass, replace
from typing import Any, Literal, Protocol

import uvicorn
from fastapi import FastAPI, Request
from fastapi.responses import JSONResponse
from jinja2 import TemplateError
from pydantic import BaseModel, Field, PositiveInt
from starlette.responses import Response
from starlette.types import ASGIApp

from sql_agent.errors import TrainingError
from sql_agent.rollouts.trajectory import joined_versions
from sql_agent.system.resources import is_memory_error
from sql_agent.system.servers import bind, http_url, new_token, uvicorn_server
from sql_agent.training.serving.chat import ChatEncoder, Ids, JsonObject, conversation_id

MODEL_NAME = "policy"
_MAX_TOKENS = 256  # maximum number of tokens in a turn if the request sets no limit
_CLIENT_CHECK_S = 0.25  # interval of checks whether the client has disconnected
_START_DEADLINE_S = 30.0


@dataclass(frozen=True)
class Sampling:
    """How to sample one turn: at most `max_tokens` new tokens; temperature 0 is greedy."""

    max_tokens: int
    temperature: float


@dataclass(frozen=True)
class Generation:
    """The ids of one sampled turn, including its end token, and the reason why the turn ended.

    `logprobs` are the natural log-probabilities of the ids. `versions` are the numbers of weight updates before the
    first and before the last token of the turn. `logprobs` and `versions` are None if the engine does not report them.
    `forced` is the range (start, end) of the ids that were inserted to close a thought, or None.
    """

    token_ids: Ids
    finish_reason: Literal["stop", "length"]
    logprobs: tuple[float, ...] | None = None
    versions: tuple[int, int] | None = None
    forced: tuple[int, int] | None = None


class Engine(Protocol):
    """A sampler of turns; `max_context` is the maximum number of tokens of a prompt and its turn together."""

    max_context: int

    async def generate(self, prompt_ids: Ids, sampling: Sampling, *, conversation: str) -> Generation:
        """Sample one turn after `prompt_ids`; cancelling the call stops the sampling.

        `conversation` identifies the conversation of the turn, so that an engine can reuse its prefix cache.
        """
        ...


def build_app(encoder: ChatEncoder, engine: Engine, *, thought_tokens: int = 0) -> FastAPI:
    """Build the ASGI app: POST /v1/chat/completions (no streaming) and GET /v1/models.

    The reply to a request with `return_token_ids` has `prompt_token_ids`, `response_token_ids` (one list for each
    choice) and, unless they are None, the other fields of Generation as `response_logprobs`, `response_versions` and
    `response_forced`. A model that thinks may sample up to `thought_tokens` tokens for its thought in addition to the
    limit of the request; a longer thought is closed. The status is 400 for a malformed request and for a request that
    exceeds the engine's `max_context`. Sampling stops when the client disconnects.
    """
    app = FastAPI()

    @app.get("/v1/models")
    async def models() -> dict[str, Any]:
        return {"object": "list", "data": [{"id": MODEL_NAME, "object": "model", "created": 0, "owned_by": "training"}]}

    @app.post("/v1/chat/completions")
    async def complete(http: Request) -> Response:
        try:
            chat = _ChatRequest.model_validate(await http.json())
            prompt_ids = encoder.encode(chat.messages, chat.offered_tools, chat.chat_template_kwargs.enable_thinking)
        except (ValueError, KeyError, TypeError, AttributeError, RecursionError, TemplateError) as error:
            return _error(400, f"malformed request: {type(error).__name__}: {error}", "BadRequestError")
        sampling = chat.sampling
        budget = thought_tokens if encoder.thinks(chat.chat_template_kwargs.enable_thinking) else 0
        if len(prompt_ids) + budget + sampling.max_tokens > engine.max_context:
            requested = f"{len(prompt_ids)} prompt and {budget + sampling.max_tokens} new tokens"
            reason = f"the model's maximum context length is {engine.max_context}, requested: {requested}"
            return _error(400, reason, "BadRequestError")
        conversation = conversation_id(chat.messages, chat.offered_tools)
        try:
            sampled = _sample(engine, encoder, prompt_ids, sampling, budget, conversation=conversation)
            turn = await _unless_disconnected(sampled, http)
        except (asyncio.CancelledError, MemoryError, RuntimeError, OSError) as error:
            return _unavailable(error)
        if turn is None:
            return Response(status_code=499)
        message = encoder.reply(turn.token_ids, prompt_ids)
        encoder.remember([*chat.messages, message], chat.offered_tools, prompt_ids + turn.token_ids)
        ids = _token_ids(prompt_ids, turn) if chat.return_token_ids else {}
        thought = message.get("reasoning_content", "")
        return JSONResponse(_completion(len(prompt_ids), message, turn, encoder.count_tokens(thought)) | ids)

    return app


async def _sample(
    engine: Engine, encoder: ChatEncoder, prompt_ids: Ids, sampling: Sampling, budget: int, *, conversation: str
) -> Generation:
    """Sample one turn; a thought that is still open after `budget` tokens is closed before the model continues."""
    if not budget:
        return await engine.generate(prompt_ids, sampling, conversation=conversation)
    first = await engine.generate(prompt_ids, replace(sampling, max_tokens=budget), conversation=conversation)
    if first.finish_reason == "stop":
        return first
    closing = encoder.closing_ids(first.token_ids, prompt_ids)
    start = first.token_ids + closing
    rest = await engine.generate(prompt_ids + start, sampling, conversation=conversation)
    logprobs = None
    if first.logprobs is not None and rest.logprobs is not None:
        logprobs = first.logprobs + (0.0,) * len(closing) + rest.logprobs
    versions = joined_versions(first.versions, rest.versions)
    forced = (len(first.token_ids), len(start)) if closing else None
    return Generation(start + rest.token_ids, rest.finish_reason, logprobs, versions, forced)


class _TemplateArguments(BaseModel):
    """The supported arguments of the chat template; None selects the template's default."""

    enable_thinking: bool | None = None


class _ChatRequest(BaseModel):
    """The supported fields of a request for a chat completion.

    Unsupported values are rejected here, because a turn that cannot be sampled would fail all turns of its batch.
    """

    messages: list[JsonObject]
    tools: list[JsonObject] | None = None
    tool_choice: Any = None
    max_completion_tokens: PositiveInt | None = None
    max_tokens: PositiveInt | None = None
    temperature: float | None = Field(None, ge=0, allow_inf_nan=False)
    top_p: float | None = Field(None, ge=1, le=1)
    stream: Literal[False] | None = None
    return_token_ids: bool | None = None
    chat_template_kwargs: _TemplateArguments = _TemplateArguments()

    @property
    def offered_tools(self) -> list[JsonObject] | None:
        return None if self.tool_choice == "none" else self.tools

    @property
    def sampling(self) -> Sampling:
        limit = self.max_completion_tokens or self.max_tokens or _MAX_TOKENS
        return Sampling(limit, 1.0 if self.temperature is None else self.temperature)


def _completion(prompt_tokens: int, message: JsonObject, turn: Generation, thought_tokens: int) -> dict[str, Any]:
    """Return a chat completion in OpenAI's format; `thought_tokens` is the number of tokens in the turn's thought."""
    calls = "tool_calls" in message and turn.finish_reason == "stop"
    choice = {"index": 0, "message": message, "finish_reason": "tool_calls" if calls else turn.finish_reason}
    new_tokens = len(turn.token_ids)
    usage: dict[str, Any] = {
        "prompt_tokens": prompt_tokens,
        "completion_tokens": new_tokens,
        "total_tokens": prompt_tokens + new_tokens,
    }
    if thought_tokens:
        usage["completion_tokens_details"] = {"reasoning_tokens": thought_tokens}
    return {
        "id": f"chatcmpl-{uuid.uuid4().hex}",
        "object": "chat.completion",
        "created": int(time.time()),
        "model": MODEL_NAME,
        "choices": [choice],
        "usage": usage,
    }


def _token_ids(prompt_ids: Ids, turn: Generation) -> dict[str, Any]:
    reported = {"logprobs": turn.logprobs, "versions": turn.versions, "forced": turn.forced}
    fields: dict[str, Any] = {"prompt_token_ids": prompt_ids, "response_token_ids": [turn.token_ids]}
    return fields | {f"response_{name}": value for name, value in reported.items() if value is not None}


async def _unless_disconnected(generating: Coroutine[Any, Any, Generation], http: Request) -> Generation | None:
    """Return the sampled turn; if the client disconnects first, stop the sampling and return None."""
    task = asyncio.create_task(generating)
    try:
        while not task.done():
            await asyncio.wait([task], timeout=_CLIENT_CHECK_S)
            if not task.done() and await http.is_disconnected():
                return None
        return task.result()
    finally:
        task.cancel()


def _unavailable(error: BaseException) -> Response:
    """Return a reply with status 503 if the server stops or memory ran out; raise any other `error` again."""
    if isinstance(error, asyncio.CancelledError):  # without a reply, uvicorn would print a traceback
        return _error(503, "the policy server is stopping", "ServiceUnavailableError")
    if is_memory_error(error):
        return _error(503, f"the policy server ran out of memory: {error}", "ServiceUnavailableError")
    raise error


def _error(status: int, message: str, kind: str) -> JSONResponse:
    return JSONResponse({"error": {"message": message, "type": kind, "code": status}}, status)


class ServerThread:
    """Serves an ASGI app in a daemon thread, by default at a free port of 127.0.0.1.

    The constructor binds the port, because LLM proxies need the server's URL before there is an app. Requests need the
    bearer token `api_key`, unless it is empty.
    """

    def __init__(self, sock: socket.socket | None = None, api_key: str = "") -> None:
        self._socket = sock or bind()
        self._running: tuple[uvicorn.Server, threading.Thread] | None = None
        self.api_key = api_key
        self.base_url = f"{http_url(self._socket)}/v1"

    @classmethod
    def with_key(cls) -> ServerThread:
        """Return a server at a free port of 127.0.0.1 with a random API key."""
        return cls(api_key=new_token())

    def start(self, app: ASGIApp) -> None:
        """Serve `app`; return when the server has started. Raises TrainingError if it does not start within 30 s."""
        server = uvicorn_server(app, self.api_key or None)
        thread = threading.Thread(target=lambda: server.run(sockets=[self._socket]), daemon=True, name="policy-server")
        self._running = server, thread
        thread.start()
        deadline = time.monotonic() + _START_DEADLINE_S
        while not server.started:
            if time.monotonic() > deadline or not thread.is_alive():
                raise TrainingError(
                    "the policy server did not start", hint="repair the cause that is logged above, then start again"
                )
            time.sleep(0.02)

    def stop(self) -> None:
        """End the server, abort open requests, and free the port."""
        if self._running is not None:
            server, thread = self._running
            server.should_exit = server.force_exit = True
            thread.join(timeout=15)
        self._socket.close()
