"""Serve a policy on an OpenAI-compatible endpoint, with the exact token ids and log-probabilities in its replies."""

from __future__ import annotations

import asyncio
import math
import socket
import threading
import time
import uuid
from collections.abc import Coroutine
from dataclasses import dataclass
from typing import Any

import uvicorn
from fastapi import FastAPI
from fastapi import Request as HttpRequest
from fastapi.responses import JSONResponse
from jinja2 import TemplateError
from starlette.responses import Response

from sql_agent.errors import TrainingError
from sql_agent.system.memory import is_memory_error
from sql_agent.system.tokens import AccessCheck
from sql_agent.training.serving.chat import ChatEncoder, DecodedTurn, Message, opening
from sql_agent.training.serving.engine import Engine, Generation, Sampling

MODEL_NAME = "policy"
_CLIENT_CHECK_S = 0.25
_START_DEADLINE_S = 30.0
KEEP_ALIVE_S = 3600


def build_app(encoder: ChatEncoder, engine: Engine) -> FastAPI:
    """Build the ASGI app: POST /v1/chat/completions (no streaming) and GET /v1/models.

    The reply to a request with `return_token_ids` has `prompt_token_ids` and `response_token_ids` (one list for each
    choice) and, where the engine knows them, `response_logprobs` (natural logarithms, one for each id) and
    `response_versions` (the first and the last version of the weights). Replies 400 to a request that streams or that
    exceeds the engine's `max_context`, and stops sampling when the client disconnects.
    """
    app = FastAPI()

    @app.get("/v1/models")
    async def models() -> dict[str, Any]:
        return {"object": "list", "data": [{"id": MODEL_NAME, "object": "model", "created": 0, "owned_by": "training"}]}

    @app.post("/v1/chat/completions")
    async def complete(http: HttpRequest) -> Response:
        try:
            asked = _parse(await http.json(), encoder)
        except (ValueError, KeyError, TypeError, AttributeError, RecursionError, TemplateError) as error:
            return _error(400, f"the request cannot be read: {type(error).__name__}: {error}", "BadRequestError")
        if asked.streams:
            return _error(400, "this server does not stream", "BadRequestError")
        prompt_ids, sampling = asked.prompt_ids, asked.sampling
        if len(prompt_ids) + sampling.max_tokens > engine.max_context:
            requested = f"{len(prompt_ids)} prompt and {sampling.max_tokens} new tokens"
            reason = f"the model's maximum context length is {engine.max_context}, requested: {requested}"
            return _error(400, reason, "BadRequestError")
        generating = engine.generate(prompt_ids, sampling, conversation=opening(asked.messages, asked.tools))
        try:
            turn = await _unless_disconnected(generating, http)
        except (asyncio.CancelledError, MemoryError, RuntimeError, OSError) as error:
            return _unavailable(error)
        if turn is None:
            return Response(status_code=499)
        reply = encoder.reply(turn.token_ids)
        encoder.remember(asked.messages, asked.tools, prompt_ids, reply)
        return JSONResponse(_answer(asked, reply, turn))

    return app


@dataclass(frozen=True)
class _ChatRequest:
    """A parsed request for a chat completion."""

    messages: list[Message]
    tools: list[Message] | None
    prompt_ids: tuple[int, ...]
    sampling: Sampling
    streams: bool
    wants_ids: bool


def _parse(body: dict[str, Any], encoder: ChatEncoder) -> _ChatRequest:
    """Parse the body of a request. Raises one of several built-in errors for a malformed body."""
    messages, sampling = body["messages"], _sampling(body)
    tools = None if body.get("tool_choice") == "none" else body.get("tools")
    return _ChatRequest(
        messages,
        tools,
        encoder.encode(messages, tools),
        sampling,
        streams=bool(body.get("stream")),
        wants_ids=bool(body.get("return_token_ids")),
    )


def _answer(asked: _ChatRequest, reply: DecodedTurn, turn: Generation) -> dict[str, Any]:
    calls = "tool_calls" in reply.message and turn.finish_reason == "stop"
    choice = {"index": 0, "message": reply.message, "finish_reason": "tool_calls" if calls else turn.finish_reason}
    answer: dict[str, Any] = {
        "id": f"chatcmpl-{uuid.uuid4().hex}",
        "object": "chat.completion",
        "created": int(time.time()),
        "model": MODEL_NAME,
        "choices": [choice],
        "usage": _usage(len(asked.prompt_ids), len(turn.token_ids)),
    }
    if asked.wants_ids:
        answer["prompt_token_ids"] = asked.prompt_ids
        answer["response_token_ids"] = [turn.token_ids]
        if turn.logprobs is not None:
            answer["response_logprobs"] = turn.logprobs
        if turn.versions is not None:
            answer["response_versions"] = turn.versions
    return answer


def _sampling(body: dict[str, Any]) -> Sampling:
    limit = int(body.get("max_completion_tokens") or body.get("max_tokens") or 256)
    temperature = 1.0 if body.get("temperature") is None else float(body["temperature"])
    # Rejected here, because one row that cannot be sampled would fail the whole batch; a NaN fails every comparison.
    if not (limit > 0 and 0 <= temperature < math.inf and body.get("top_p") in {None, 1}):
        raise ValueError("max_tokens must be above 0, temperature at least 0, and top_p 1")
    return Sampling(limit, temperature)


async def _unless_disconnected(generating: Coroutine[Any, Any, Generation], http: HttpRequest) -> Generation | None:
    """Return the sampled turn, or None when the client disconnected. Disconnecting and cancelling stop the sampling."""
    task = asyncio.create_task(generating)
    try:
        while not task.done():
            await asyncio.wait([task], timeout=_CLIENT_CHECK_S)
            if not task.done() and await http.is_disconnected():
                return None
        return task.result()
    finally:
        task.cancel()


def _usage(prompt: int, completion: int) -> dict[str, int]:
    return {"prompt_tokens": prompt, "completion_tokens": completion, "total_tokens": prompt + completion}


def _unavailable(error: BaseException) -> Response:
    """Return the reply for an expected `error` of sampling, and raise any other one again."""
    if isinstance(error, asyncio.CancelledError):  # by `ServerThread.stop`; uvicorn would print a traceback
        return _error(503, "this server stops", "ServiceUnavailableError")
    if is_memory_error(error):
        return _error(503, f"the policy endpoint got no more memory: {error}", "ServiceUnavailableError")
    raise error


def _error(status: int, message: str, kind: str) -> JSONResponse:
    return JSONResponse({"error": {"message": message, "type": kind, "code": status}}, status)


class ServerThread:
    """Runs an ASGI app on a bound socket in a daemon thread; requests need the bearer `api_key`, if there is one."""

    def __init__(self, app: FastAPI, sock: socket.socket, api_key: str | None = None) -> None:
        self._socket = sock
        # uvicorn's keep-alive of 5 s is about as long as a training step, so connections would be closed between two.
        config = uvicorn.Config(
            AccessCheck(app, api_key),
            interface="asgi3",
            log_level="warning",
            lifespan="off",
            timeout_keep_alive=KEEP_ALIVE_S,
        )
        self._server = uvicorn.Server(config)
        self._thread = threading.Thread(
            target=lambda: self._server.run(sockets=[sock]), daemon=True, name="policy-server"
        )

    @property
    def base_url(self) -> str:
        """Return the address of the API, ending in /v1."""
        host, port = self._socket.getsockname()[:2]
        return f"http://{host}:{port}/v1"

    def start(self) -> None:
        """Start the thread and wait until requests are accepted. Raises TrainingError after 30 s."""
        self._thread.start()
        deadline = time.monotonic() + _START_DEADLINE_S
        while not self._server.started:
            if time.monotonic() > deadline or not self._thread.is_alive():
                raise TrainingError("the policy server did not start", hint="see the log above for its reason")
            time.sleep(0.02)

    def stop(self) -> None:
        """End the server and free the port; open requests are cut off."""
        self._server.should_exit = self._server.force_exit = True
        self._thread.join(timeout=15)
        self._socket.close()
