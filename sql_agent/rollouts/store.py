"""The store of rollouts and spans: in memory, served over HTTP, and the client of a served store."""

from __future__ import annotations

from collections import deque
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from contextlib import asynccontextmanager, contextmanager
from typing import Any, Final, TypeGuard

import agentlightning as agl
import aiohttp
from starlette.responses import JSONResponse

from sql_agent.errors import SqlAgentError, TrainingError
from sql_agent.rollouts.run_role import HEALTH_PATH, StoreAddress
from sql_agent.system.servers import bearer, bind, served, uvicorn_server

QUEUED: Final = ("queuing", "requeuing")  # statuses of a rollout that no runner has taken
STARTED: Final = ("preparing", "running")  # statuses of a rollout that a runner has taken
LOST = "lost"  # key in the metadata of a rollout whose process died; the value is the reason

STORE_ERRORS = (aiohttp.ClientError, OSError, TimeoutError, RuntimeError)  # raised when a store is down
_DOWN = (404, 405, 408, 425, 429, 502, 503, 504)  # HTTP statuses of a gateway whose store is down

_ENDED = ("succeeded", "failed", "cancelled")
_SPAN_BYTES = 1400  # estimated memory of a span without attributes
_MOST_SPAN_BYTES = 256 << 20  # limit; agent-lightning's default is 70 % of the machine's memory
_KEPT = 4096  # maximum number of ended rollouts in memory: more than end between two polls (2 s)


class RunStore(agl.InMemoryLightningStore):  # type: ignore[misc]
    """In-memory store that calls `on_end` for each ended rollout, and keeps at most 4,096 of them, the last to end.

    agent-lightning's own store keeps all rollouts and attempts, which are millions in one night. All calls must come
    from one event loop.
    """

    def __init__(self) -> None:
        # Without thread_safe=True, agent-lightning's server blocks all threads while one call waits.
        super().__init__(thread_safe=True, eviction_memory_threshold=_MOST_SPAN_BYTES, span_size_estimator=_size_of)
        self.on_end: Callable[[agl.Rollout], object] | None = None
        self._ended: deque[str] = deque()

    async def add_many_spans(self, spans: Sequence[agl.Span]) -> Sequence[agl.Span]:
        """Store `spans` without those of deleted rollouts: one such span makes the base class refuse all `spans`."""
        known = [span for span in spans if span.rollout_id in self._start_time_by_rollout]
        return list(await super().add_many_spans(known))

    async def _post_update_rollout(
        self, rollouts: Sequence[tuple[agl.Rollout, Sequence[str]]], skip_enqueue: bool = False
    ) -> None:
        await super()._post_update_rollout(rollouts, skip_enqueue=skip_enqueue)
        for rollout, changed in rollouts:
            if rollout.status in _ENDED and "status" in changed:
                self._ended.append(rollout.rollout_id)
                if self.on_end is not None:
                    self.on_end(rollout)
        # Half of the limit at which agent-lightning would delete spans, also those of running rollouts.
        while len(self._ended) > (_KEPT if self._total_span_bytes < _MOST_SPAN_BYTES // 2 else _KEPT // 4):
            await self._delete(self._ended.popleft())

    async def _delete(self, rollout_id: str) -> None:
        if self._start_time_by_rollout.pop(rollout_id, None) is None:
            return  # deleted before: the rollout ended twice, for example as failed and then late
        collections = self.collections
        of_rollout = {"rollout_id": {"exact": rollout_id}}
        await self._evict_spans_for_rollout(collections, rollout_id)
        for collection in (collections.attempts, collections.rollouts):
            await collection.delete((await collection.query(filter=of_rollout)).items)
        collections.attempts._items.pop(rollout_id, None)  # otherwise an empty dict remains for each rollout
        await collections.span_sequence_ids.pop(rollout_id)
        self._evicted_rollout_span_sets.discard(rollout_id)
        self._completion_events.pop(rollout_id, None)


def _size_of(span: agl.Span) -> int:
    """Return the estimated bytes of a span in memory, which are mostly its attributes."""
    return _SPAN_BYTES + sum(len(value) for value in (span.attributes or {}).values() if isinstance(value, str))


@asynccontextmanager
async def served_store(
    store: RunStore, host: str = "127.0.0.1", port: int = 0, token: str | None = None
) -> AsyncIterator[str]:
    """Serve `store` on the running event loop, and yield its URL; port 0 means any free port.

    Requests need the bearer `token`, unless None. Raises the errors of `bind`. agent-lightning's own server is not
    used: it runs in a thread, and the threads of a process wait for each other at each request.
    """
    sock = bind(host, port)
    server = agl.LightningStoreServer(store, host, sock.getsockname()[1])
    app: Any = server.app
    app.user_middleware.clear()  # agent-lightning's middlewares time and log each request, which took half of the time
    # A ValueError, such as for a deleted rollout, gets no traceback, and a status after which no client tries again.
    app.add_exception_handler(ValueError, lambda _request, error: JSONResponse({"detail": str(error)}, 400))
    async with served(uvicorn_server(app, token, open_paths={HEALTH_PATH}), sock):
        yield server.endpoint


class StoreClient(agl.LightningStoreClient):  # type: ignore[misc]
    """agent-lightning's client with the bearer token of `store`; `options` are those of the base class."""

    def __init__(self, store: StoreAddress, **options: Any) -> None:
        super().__init__(store.url, **options)
        self.token = store.token

    async def _get_session(self) -> aiohttp.ClientSession:
        session: aiohttp.ClientSession = await super()._get_session()
        session.headers.update(bearer(self.token))
        return session

    async def dequeue_many_rollouts(
        self, *, limit: int = 1, worker_id: str | None = None
    ) -> Sequence[agl.AttemptedRollout]:
        """Take queued rollouts. Raises STORE_ERRORS or ValueError; the base class hides these errors."""
        if not limit:
            return []
        session = await self._get_session()
        wanted = {"limit": limit, "worker_id": worker_id}
        async with session.post(f"{self.server_address}/queues/rollouts/dequeue", json=wanted) as response:
            response.raise_for_status()
            return [agl.AttemptedRollout.model_validate(rollout) for rollout in await response.json()]


def is_refusal(error: Exception) -> TypeGuard[aiohttp.ClientResponseError]:
    """Return whether `error` means that the store refused a request, and would refuse the same request again."""
    return isinstance(error, aiohttp.ClientResponseError) and error.status >= 400 and error.status not in _DOWN


async def fail_rollouts(store: agl.LightningStore, reason: str, *, of: Callable[[agl.Rollout, str], bool]) -> int:
    """Fail each started rollout if `of(rollout, worker_id)` is true, with `reason` as metadata; return how many."""
    lost = 0
    for rollout in await store.query_rollouts(status_in=list(STARTED)):
        attempt = getattr(rollout, "attempt", None)
        if attempt is not None and of(rollout, attempt.worker_id or ""):
            metadata = (rollout.metadata or {}) | {LOST: reason}
            await store.update_rollout(rollout.rollout_id, status="failed", metadata=metadata)
            lost += 1
    return lost


class StoreLostError(TrainingError):
    """The store is down, refuses requests, or sends unreadable answers."""


@contextmanager
def named_store_errors() -> Iterator[None]:
    """Raise StoreLostError in place of an error of the store's client in the block.

    A SqlAgentError is raised unchanged.
    """
    try:
        yield
    except SqlAgentError:
        raise
    except (aiohttp.ClientError, OSError, RuntimeError, ValueError) as error:
        problem = f"the store does not answer any more: {type(error).__name__}: {error}"
        hint = "start the store again, then continue this run with --resume"
        if is_refusal(error):
            problem = f"the store answers {error.request_info.url.path} with status {error.status}: {error.message}"
            hint = "read the output of the store, and start a new store: this one may contain data that it cannot send"
        elif isinstance(error, ValueError):  # raised by json or pydantic
            problem = f"the store sent an unreadable answer: {type(error).__name__}: {error}"
            hint = "use one version of this program and of agent-lightning on all hosts"
        raise StoreLostError(problem, hint=hint) from error
