"""Serve a RunStore over HTTP; the frequent requests bypass FastAPI."""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager, suppress
from typing import Any

import agentlightning as agl
from agentlightning.utils.otlp import spans_from_proto
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from pydantic_core import from_json, to_json
from starlette.requests import Request
from starlette.responses import Response
from starlette.types import ASGIApp, Receive, Scope, Send

from sql_agent.errors import TrainingError
from sql_agent.rollouts.run_role import HEALTH_PATH
from sql_agent.rollouts.store import RunStore
from sql_agent.rollouts.store_protocol import (
    CONSUMED,
    ENDED,
    REFUSED,
    REPORT,
    EndedAttempt,
    EndedRollout,
    RunnerReport,
)
from sql_agent.system.servers import bind, served, uvicorn_server

logger = logging.getLogger(__name__)

_WAIT_S = 1.0  # longest wait of a request for ended rollouts
_GRACE_S = 2  # seconds for open requests at the end; more than _WAIT_S
_MOST_ENDED = 4096  # unreported ended rollouts in memory; the scheduler's polls find older ones
_TRACES = "/v1/traces"
_PROTOBUF = "application/x-protobuf"


class FrequentRequests:
    """ASGI middleware that answers frequent requests without FastAPI, which took most of a request's time.

    These are the requests of `store_protocol.py` and OTLP spans. `app` answers all other requests.
    """

    def __init__(self, app: ASGIApp, store: RunStore) -> None:
        self._app = app
        self._store = store
        self._ended: deque[agl.Rollout] = deque(maxlen=_MOST_ENDED)
        self._has_ended = asyncio.Event()
        self._answers: dict[str, Callable[[bytes], Awaitable[bytes]]] = {
            REPORT: self._report,
            ENDED: self._report_ended,
            CONSUMED: self._consume,
            _TRACES: self._add_spans,
        }

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        path = scope["path"] if scope["type"] == "http" and scope["method"] == "POST" else ""
        answer = self._answers.get(path)
        if answer is None:
            await self._app(scope, receive, send)
            return
        try:
            body = await Request(scope, receive).body()
            response = Response(await answer(body), media_type=_PROTOBUF if path == _TRACES else "application/json")
        except Exception as error:  # the client gets the error as status 500
            detail = f"{type(error).__name__}: {error}"
            logger.log(logging.ERROR, "%s failed: %s", path, detail, exc_info=logger.isEnabledFor(logging.DEBUG))
            response = Response(to_json({"detail": detail}), 500)
        await response(scope, receive, send)

    async def _report(self, body: bytes) -> bytes:
        given = RunnerReport.model_validate_json(body)
        for attempt in given.ended:
            await self._end(attempt)
        if given.limit <= 0:
            return b"[]"
        return to_json(await self._store.dequeue_many_rollouts(limit=given.limit, worker_id=given.worker_id))

    async def _end(self, attempt: EndedAttempt) -> None:
        """Store the end of one attempt. If that raises an error, only this rollout fails."""
        try:
            await self._store.add_many_spans(attempt.spans)
            await self._store.update_attempt(attempt.rollout_id, attempt.attempt_id, status=attempt.status)
        except ValueError:  # the rollout was deleted
            logger.info("ignored the end of attempt %s of rollout %s", attempt.attempt_id, attempt.rollout_id)
        except Exception as error:  # otherwise the runner would repeat the report for ever
            rollout = await self._store.get_rollout_by_id(attempt.rollout_id)
            metadata = (rollout.metadata or {}) | {
                REFUSED: f"the store refused the report of its end: {type(error).__name__}: {error}"
            }
            await self._store.update_rollout(attempt.rollout_id, status="failed", metadata=metadata)

    async def _report_ended(self, _body: bytes) -> bytes:
        """Return the rollouts that ended since the last request; if none did, wait up to a second for the next."""
        self._store.on_end = self._note_end  # not earlier, because in a run's own store the algorithm sets `on_end`
        with suppress(TimeoutError):
            await asyncio.wait_for(self._has_ended.wait(), _WAIT_S)
        self._has_ended.clear()
        ended = list(self._ended)
        self._ended.clear()
        return to_json([EndedRollout(rollout=rollout, spans=await self._spans_of(rollout)) for rollout in ended])

    async def _spans_of(self, rollout: agl.Rollout) -> Sequence[agl.Span]:
        try:
            return await self._store.spans_of(rollout.rollout_id)
        except TrainingError:  # evicted; the client's own call of spans_of raises the error
            return []

    def _note_end(self, rollout: agl.Rollout) -> None:
        if rollout.status != "cancelled":  # the algorithm itself cancels rollouts
            self._ended.append(rollout)
            self._has_ended.set()

    async def _consume(self, body: bytes) -> bytes:
        for rollout_id in from_json(body):
            await self._store.mark_consumed(rollout_id)
        return b"{}"

    async def _add_spans(self, body: bytes) -> bytes:
        request: Any = ExportTraceServiceRequest.FromString(body)
        await self._store.add_many_spans(await spans_from_proto(request, self._store.get_many_span_sequence_ids))
        return b""


async def serve_store(
    host: str, port: int, started: Callable[[str], None], until: Awaitable[object], *, token: str | None
) -> None:
    """Serve a RunStore at `host` and `port` until `until` is done; call `started` with its URL once it answers.

    Requests need the bearer `token`, if any. Raises TrainingError when the port is taken, and ConfigError when the
    address does not exist.
    """
    async with served_store(RunStore(), host, port, token) as url:
        started(url)
        await until


@asynccontextmanager
async def served_store(
    store: RunStore, host: str = "127.0.0.1", port: int | None = None, token: str | None = None
) -> AsyncIterator[str]:
    """Serve `store` on the running event loop, by default at a free port, and yield its URL.

    Requests need the bearer `token`, if any. Raises the errors of `bind`. agent-lightning's own server runs in a
    thread, and threads of one process wait for each other at each request.
    """
    sock = bind(host, port or 0)
    server = agl.LightningStoreServer(store, host, sock.getsockname()[1])
    app: Any = server.app
    app.user_middleware.clear()  # agent-lightning's middlewares time and log each request, which took half of the time
    http = uvicorn_server(FrequentRequests(app, store), token, open_paths={HEALTH_PATH}, grace_s=_GRACE_S)
    async with served(http, sock):
        yield server.endpoint
