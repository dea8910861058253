"""Serve a RunStore: its frequent requests are answered without FastAPI."""

from __future__ import annotations

import logging
import re
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any

import agentlightning as agl
from agentlightning.utils.otlp import spans_from_proto
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from pydantic_core import from_json, to_json
from starlette.requests import Request
from starlette.responses import Response
from starlette.types import ASGIApp, Receive, Scope, Send

from sql_agent.agl.notifier import Notifier
from sql_agent.agl.store import CONSUMED, RunStore
from sql_agent.errors import TrainingError

logger = logging.getLogger(__name__)

_ATTEMPT = re.compile(r"/v1/agl/rollouts/([^/]+)/attempts/(?!search$)([^/]+)")
SPAN_BYTES = 256 << 20  # the default store keeps spans until they fill 70 % of the memory
_PROTOBUF = "application/x-protobuf"


def speed_up(server: agl.LightningStoreServer) -> None:
    """Let a started `server` of a RunStore answer the frequent requests by `FrequentRequests`, the others as before.

    Its middlewares, which time and log each request, are removed: they took half of its processor time.
    """
    app: Any = server.app
    app.user_middleware.clear()
    app.middleware_stack = FrequentRequests(app.build_middleware_stack(), server.store)


class FrequentRequests:
    """Answers the requests of which each rollout makes several, and those that mark rollouts as consumed.

    They come from our own clients, so nothing is validated twice. All others go to `app`.
    """

    def __init__(self, app: ASGIApp, store: RunStore) -> None:
        self._app = app
        self._store = store
        self._answers: dict[str, Callable[[bytes], Awaitable[bytes]]] = {
            "/v1/agl/spans/next": self._number,
            "/v1/agl/queues/rollouts/dequeue": self._dequeue,
            "/v1/traces": self._add_spans,
            CONSUMED: self._consume,
        }

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http" or scope["method"] != "POST":
            await self._app(scope, receive, send)
            return
        path = scope["path"]
        answer, attempt = self._answers.get(path), _ATTEMPT.fullmatch(path)
        if answer is None and attempt is None:
            await self._app(scope, receive, send)
            return
        body = await Request(scope, receive).body()
        try:
            content = await answer(body) if answer else await self._update(attempt[1], attempt[2], body)  # type: ignore[index]
            response = Response(content, media_type=_PROTOBUF if path == "/v1/traces" else "application/json")
        except Exception as error:  # whichever error the store raises, the client gets it
            logger.exception("%s failed", path)
            response = Response(to_json({"detail": f"{type(error).__name__}: {error}"}), 500)
        await response(scope, receive, send)

    async def _number(self, body: bytes) -> bytes:
        given = from_json(body)
        number = await self._store.get_next_span_sequence_id(given["rollout_id"], given["attempt_id"])
        return to_json({"sequence_id": number})

    async def _dequeue(self, body: bytes) -> bytes:
        given = from_json(body) if body else {}
        limit, worker = given.get("limit", 1), given.get("worker_id")
        return to_json(await self._store.dequeue_many_rollouts(limit=limit, worker_id=worker) if limit > 0 else [])

    async def _update(self, rollout_id: str, attempt_id: str, body: bytes) -> bytes:
        return to_json(await self._store.update_attempt(rollout_id, attempt_id, **from_json(body)))

    async def _consume(self, body: bytes) -> bytes:
        for rollout_id in from_json(body):
            await self._store.mark_consumed(rollout_id)
        return b"{}"

    async def _add_spans(self, body: bytes) -> bytes:
        request: Any = ExportTraceServiceRequest.FromString(body)
        await self._store.add_many_spans(await spans_from_proto(request, self._store.get_many_span_sequence_ids))
        return b""


async def serve_store(host: str, port: int, started: Callable[[str], None], until: Awaitable[object]) -> None:
    """Serve a RunStore at `host` and `port` until `until` ends; `started` gets its address once it answers.

    Raises TrainingError when it cannot be served there.
    """
    store = RunStore(Notifier(1), thread_safe=True, eviction_memory_threshold=SPAN_BYTES)
    server = agl.LightningStoreServer(store, host, port)
    async with served(server):
        started(server.endpoint)
        await until


@asynccontextmanager
async def served(server: agl.LightningStoreServer) -> AsyncIterator[None]:
    """Start `server`, whose store is a RunStore, for the context. Raises TrainingError when it cannot be served."""
    try:
        await server.start()
    except RuntimeError as error:
        raise TrainingError(f"the store cannot be served at {server.endpoint}: {error}") from error
    speed_up(server)
    try:
        yield
    finally:
        await server.stop()
