"""Serve a RunStore: its frequent requests are answered without FastAPI."""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager, suppress
from typing import Any

import agentlightning as agl
import uvicorn
from pydantic_core import from_json, to_json
from starlette.requests import Request
from starlette.responses import Response
from starlette.types import ASGIApp, Receive, Scope, Send

from sql_agent.errors import TrainingError
from sql_agent.rollouts.store import RunStore
from sql_agent.rollouts.store_address import HEALTH_PATH
from sql_agent.rollouts.store_protocol import (
    CONSUMED,
    ENDED,
    REFUSED,
    REPORT,
    EndedAttempt,
    EndedRollout,
    RunnerReport,
)
from sql_agent.system.sockets import bind
from sql_agent.system.tokens import AccessCheck

logger = logging.getLogger(__name__)

SPAN_BYTES = 256 << 20  # the default store keeps spans until they fill 70 % of the memory
_WAIT_S = 1.0
_KEEP_ALIVE_S = 30  # longer than clients keep an idle connection
_GRACE_S = 2  # for requests in hand, which is more than _WAIT_S
_STOP_S = 5.0
_MOST_ENDED = 4096  # until they are asked for; the scheduler's polls find a rollout that fell out


class FrequentRequests:
    """Answers the requests that rollouts make: those of runners, and of the algorithm that consumes the rollouts.

    All others go to `app`.
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
        }

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        path = scope["path"] if scope["type"] == "http" and scope["method"] == "POST" else ""
        answer = self._answers.get(path)
        if answer is None:
            await self._app(scope, receive, send)
            return
        try:
            body = await Request(scope, receive).body()
            response = Response(await answer(body), media_type="application/json")
        except Exception as error:  # the client gets every error of the store
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
        """Store the end of one attempt; an end that cannot be stored fails the rollout, and no other."""
        try:
            await self._store.add_many_spans(attempt.spans)
            await self._store.update_attempt(attempt.rollout_id, attempt.attempt_id, status=attempt.status)
        except ValueError:  # the rollout was deleted meanwhile
            logger.info("ignored the end of attempt %s of rollout %s", attempt.attempt_id, attempt.rollout_id)
        except Exception as error:  # any defect: the runner would report the end for ever
            rollout = await self._store.get_rollout_by_id(attempt.rollout_id)
            metadata = (rollout.metadata or {}) | {
                REFUSED: f"the store refused its end: {type(error).__name__}: {error}"
            }
            await self._store.update_rollout(attempt.rollout_id, status="failed", metadata=metadata)

    async def _report_ended(self, _body: bytes) -> bytes:
        """Answer when rollouts have ended since the last request, or after a second."""
        self._store.on_end = self._note_end  # only now, because a run's own store calls its algorithm
        with suppress(TimeoutError):
            await asyncio.wait_for(self._has_ended.wait(), _WAIT_S)
        self._has_ended.clear()
        ended = list(self._ended)
        self._ended.clear()
        return to_json([EndedRollout(rollout=rollout, spans=await self._spans_of(rollout)) for rollout in ended])

    async def _spans_of(self, rollout: agl.Rollout) -> Sequence[agl.Span]:
        try:
            return await self._store.spans_of(rollout.rollout_id)
        except TrainingError:  # evicted, as its reader learns from spans_of
            return []

    def _note_end(self, rollout: agl.Rollout) -> None:
        if rollout.status != "cancelled":  # by its algorithm
            self._ended.append(rollout)
            self._has_ended.set()

    async def _consume(self, body: bytes) -> bytes:
        for rollout_id in from_json(body):
            await self._store.mark_consumed(rollout_id)
        return b"{}"


async def serve_store(
    host: str, port: int, started: Callable[[str], None], until: Awaitable[object], *, token: str | None
) -> None:
    """Serve a RunStore at `host` and `port` until `until` ends; `started` gets its address once it answers.

    It requires the bearer `token`, if any. Raises TrainingError when the address cannot be used.
    """
    store = RunStore(eviction_memory_threshold=SPAN_BYTES)
    server = agl.LightningStoreServer(store, host, port)
    async with served(server, token=token):
        started(server.endpoint)
        await until


@asynccontextmanager
async def served(server: agl.LightningStoreServer, *, token: str | None = None) -> AsyncIterator[None]:
    """Serve the RunStore of `server` on this event loop for the context; requests need the bearer `token`, if any.

    Raises TrainingError when it cannot be served. The server's own `start` would serve in a thread: two threads of one
    process wait for each other at each request.
    """
    app: Any = server.app
    app.user_middleware.clear()  # they time and log each request, which took half of the time
    http = uvicorn.Server(
        uvicorn.Config(
            AccessCheck(FrequentRequests(app, server.store), token, open_paths={HEALTH_PATH}),
            interface="asgi3",
            log_level="warning",
            access_log=False,
            proxy_headers=False,
            lifespan="off",
            timeout_keep_alive=_KEEP_ALIVE_S,
            timeout_graceful_shutdown=_GRACE_S,
        )
    )
    sock = bind(server.launcher_args.host, server.launcher_args.port)
    # Not serve(), because that installs signal handlers.
    serving = asyncio.create_task(http._serve(sockets=[sock]))
    while not http.started:
        if serving.done():
            raise TrainingError(f"the store cannot be served at {server.endpoint}: {serving.exception()!r}")
        await asyncio.sleep(0.01)
    try:
        yield
    finally:
        http.should_exit = True
        await asyncio.wait([serving], timeout=_STOP_S)
