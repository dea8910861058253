"""The policy behind an OpenAI-compatible endpoint on 127.0.0.1, with vLLM's token ids in its replies."""

from __future__ import annotations

import asyncio
import socket
import threading
import time
import uuid
from typing import Any

import uvicorn
from fastapi import FastAPI
from fastapi import Request as HttpRequest
from fastapi.responses import JSONResponse
from starlette.responses import Response

from sql_agent.backends.local.batcher import Batcher
from sql_agent.backends.local.chat import ChatEncoder
from sql_agent.backends.local.sampler import Request, Sampled
from sql_agent.errors import TrainingError

MODEL_NAME = "policy"
_CLIENT_CHECK_S = 0.25
_START_DEADLINE_S = 30.0


def build_app(encoder: ChatEncoder, batcher: Batcher, *, max_context: int) -> FastAPI:
    """The ASGI app: POST /v1/chat/completions (no streaming) and GET /v1/models."""
    app = FastAPI()

    @app.get("/v1/models")
    async def models() -> dict[str, Any]:
        return {"object": "list", "data": [{"id": MODEL_NAME, "object": "model", "created": 0, "owned_by": "local"}]}

    @app.post("/v1/chat/completions")
    async def complete(http: HttpRequest) -> Response:
        body = await http.json()
        if body.get("stream"):
            return _error(400, "this server does not stream", "BadRequestError")
        tools = None if body.get("tool_choice") == "none" else body.get("tools")
        prompt_ids = encoder.encode(body["messages"], tools)
        request = _request(body, prompt_ids)
        if len(prompt_ids) + request.max_tokens > max_context:
            asked = f"{len(prompt_ids)} prompt and {request.max_tokens} new tokens"
            return _error(
                400, f"the model's maximum context length is {max_context}, asked: {asked}", "BadRequestError"
            )
        sampled = await _await(batcher, request, http)
        if sampled is None:
            return Response(status_code=499)
        reply = encoder.reply(sampled.token_ids)
        encoder.remember(body["messages"], tools, prompt_ids, reply)
        calls = "tool_calls" in reply.message and sampled.finish_reason == "stop"
        choice = {
            "index": 0,
            "message": reply.message,
            "finish_reason": "tool_calls" if calls else sampled.finish_reason,
        }
        answer: dict[str, Any] = {
            "id": f"chatcmpl-{uuid.uuid4().hex}",
            "object": "chat.completion",
            "created": int(time.time()),
            "model": MODEL_NAME,
            "choices": [choice],
            "usage": _usage(len(prompt_ids), len(sampled.token_ids)),
        }
        if body.get("return_token_ids"):
            answer["prompt_token_ids"] = prompt_ids
            choice["token_ids"] = sampled.token_ids
        return JSONResponse(answer)

    return app


def _request(body: dict[str, Any], prompt_ids: tuple[int, ...]) -> Request:
    def number(key: str, default: float) -> float:
        value = body.get(key)
        return default if value is None else float(value)

    limit = body.get("max_completion_tokens") or body.get("max_tokens") or 256
    return Request(prompt_ids, int(limit), number("temperature", 1.0), number("top_p", 1.0))


async def _await(batcher: Batcher, request: Request, http: HttpRequest) -> Sampled | None:
    """The sampled turn; None when the client went away, which also stops the row."""
    future = asyncio.wrap_future(batcher.submit(request))
    while not future.done():
        await asyncio.wait([future], timeout=_CLIENT_CHECK_S)
        if not future.done() and await http.is_disconnected():
            request.cancelled.set()
            return None
    return future.result()


def _usage(prompt: int, completion: int) -> dict[str, int]:
    return {"prompt_tokens": prompt, "completion_tokens": completion, "total_tokens": prompt + completion}


def _error(status: int, message: str, kind: str) -> JSONResponse:
    return JSONResponse({"error": {"message": message, "type": kind, "code": status}}, status)


class ServerThread:
    """Runs an ASGI app on a bound socket in a daemon thread, until `stop`."""

    def __init__(self, app: FastAPI, sock: socket.socket) -> None:
        self._socket = sock
        self._server = uvicorn.Server(uvicorn.Config(app, log_level="warning", timeout_graceful_shutdown=3))
        self._thread = threading.Thread(
            target=lambda: self._server.run(sockets=[sock]), daemon=True, name="policy-server"
        )

    @property
    def base_url(self) -> str:
        return f"http://127.0.0.1:{self._socket.getsockname()[1]}/v1"

    def start(self) -> None:
        """Serve, and return once requests are accepted. Raises TrainingError after 30 s without."""
        self._thread.start()
        deadline = time.monotonic() + _START_DEADLINE_S
        while not self._server.started:
            if time.monotonic() > deadline or not self._thread.is_alive():
                raise TrainingError("the policy server did not start", hint="see the log above for its reason")
            time.sleep(0.02)

    def stop(self) -> None:
        """End the server and free the port."""
        self._server.should_exit = True
        self._thread.join(timeout=15)
        self._socket.close()
