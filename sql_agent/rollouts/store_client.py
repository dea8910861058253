"""Clients of a store in another process (`agl store`, or a RunStore), and a health check of the store."""

from __future__ import annotations

import asyncio
import http.client
import logging
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import Any

import agentlightning as agl
import aiohttp
from pydantic import TypeAdapter

from sql_agent.rollouts.run_role import DIRECTLY, HEALTH_PATH, StoreAddress
from sql_agent.rollouts.store_protocol import (
    CONSUMED,
    ENDED,
    REFUSED,
    REPORT,
    STARTED,
    STORE_ERRORS,
    AlgorithmStore,
    EndedAttempt,
    EndedRollout,
    RunnerReport,
)
from sql_agent.system.messages import Outage
from sql_agent.system.servers import bearer

logger = logging.getLogger(__name__)

_CONSUMED_AT_ONCE = 32
_PAUSE_S = 0.5  # between two health checks
_WATCH_TIMEOUT_S = 1.5
_SILENT_S = 3.5  # without an answer, until an outage is reported: a store may be busy, or restart
_AWAY = (404, 405, 408, 425, 429, 502, 503, 504)  # HTTP statuses of a gateway whose store is down
_ENDED_PAUSE_S = 0.02  # between two requests for ended rollouts
_ENDED = TypeAdapter(list[EndedRollout])


def open_store(address: StoreAddress, **options: Any) -> AglStoreClient:
    """Return a client of the store at `address`; `options` are those of agent-lightning's client."""
    return (AglStoreClient if address.is_agl_store else StoreClient)(address.url, token=address.token, **options)


class AglStoreClient(agl.LightningStoreClient, AlgorithmStore):  # type: ignore[misc]
    """Client of `agl store`, or another store that answers only agent-lightning's own requests.

    Such a store must be polled for ended rollouts, and never deletes a rollout.
    """

    def __init__(self, server_address: str, *, token: str | None = None, **options: Any) -> None:
        """Use the store at the URL `server_address` (without a path) with the bearer `token`, if any."""
        super().__init__(server_address, **options)
        self.token = token

    async def report_and_take(
        self, ended: Sequence[EndedAttempt], *, worker_id: str, limit: int
    ) -> Sequence[agl.AttemptedRollout]:
        """Report `ended` attempts with their spans, and return up to `limit` queued rollouts for `worker_id`.

        Raises one of STORE_ERRORS when the store does not answer; then report the same attempts again, because the
        report may be lost. If the store refuses to store an attempt's end, the attempt fails.
        """
        # Concurrently, because the client retries for seconds when the store has lost a rollout.
        await asyncio.gather(*map(self._report, ended))
        taken: Sequence[agl.AttemptedRollout] = await self.dequeue_many_rollouts(limit=limit, worker_id=worker_id)
        return taken

    async def watch_ended(self, callback: Callable[[agl.Rollout], bool]) -> None:
        """Return at once, because this kind of store must be polled."""

    async def spans_of(self, rollout_id: str) -> Sequence[agl.Span]:
        """Return the spans of a rollout's latest attempt, in any order."""
        spans: Sequence[agl.Span] = await self.query_spans(rollout_id, "latest")
        return spans

    async def mark_consumed(self, rollout_id: str) -> None:
        """Do nothing: the store keeps all rollouts."""

    async def _get_session(self) -> aiohttp.ClientSession:
        session: aiohttp.ClientSession = await super()._get_session()
        session.headers.update(bearer(self.token))
        return session

    async def _report(self, attempt: EndedAttempt) -> None:
        try:
            await self.add_many_spans(attempt.spans)
            await self.update_attempt(attempt.rollout_id, attempt.attempt_id, status=attempt.status)
        except aiohttp.ClientResponseError as error:  # for example when the store has lost the rollout
            await self._give_up(attempt.rollout_id, f"status {error.status}: {error.message}")

    async def _give_up(self, rollout_id: str, cause: str) -> None:
        """Fail a rollout whose end the store refuses to store, because the report would be repeated for ever."""
        try:
            for rollout in await self.query_rollouts(rollout_id_in=[rollout_id], status_in=STARTED):
                metadata = (rollout.metadata or {}) | {REFUSED: f"the store refused the report of its end: {cause}"}
                await self.update_rollout(rollout_id, status="failed", metadata=metadata)
        except aiohttp.ClientResponseError as error:
            if not is_refusal(error.status):
                raise
            logger.warning("rollout %s will time out, because the store refuses its end: %s", rollout_id, cause)


class StoreClient(AglStoreClient):
    """Client of a RunStore, which handles many rollouts per request."""

    def __init__(self, server_address: str, *, token: str | None = None, **options: Any) -> None:
        """Use the store at the URL `server_address` (without a path) with the bearer `token`, if any."""
        super().__init__(server_address, token=token, **options)
        self._consumed: list[str] = []
        self._spans: dict[str, Sequence[agl.Span]] = {}  # of ended rollouts, until `spans_of` returns them

    async def report_and_take(
        self, ended: Sequence[EndedAttempt], *, worker_id: str, limit: int
    ) -> Sequence[agl.AttemptedRollout]:
        """Do the same as the base class in one request."""
        report = RunnerReport(worker_id=worker_id, ended=ended, limit=limit)
        answer = await self._post(REPORT, report.model_dump(mode="json"))
        return [agl.AttemptedRollout.model_validate(taken) for taken in answer]

    async def watch_ended(self, callback: Callable[[agl.Rollout], bool]) -> None:
        """Call `callback` with each rollout that ends, until cancelled.

        If `callback` returns true, the rollout's spans are kept for `spans_of`.
        """
        while True:
            try:
                reported = _ENDED.validate_python(await self._post(ENDED, None))
            except (*STORE_ERRORS, ValueError) as error:  # the scheduler's polls find the missed rollouts
                logger.info("the store did not report which rollouts ended: %r", error)
                reported = []
            for ended in reported:
                if callback(ended.rollout):
                    self._spans[ended.rollout.rollout_id] = ended.spans
            await asyncio.sleep(_ENDED_PAUSE_S)

    async def spans_of(self, rollout_id: str) -> Sequence[agl.Span]:
        """Return the spans of a rollout's latest attempt, in any order, if possible those from `watch_ended`."""
        spans = self._spans.pop(rollout_id, None)
        return spans if spans is not None else await super().spans_of(rollout_id)

    async def mark_consumed(self, rollout_id: str) -> None:
        """Let the store delete an ended rollout later; one request sends the ids of 32 rollouts.

        If the store does not answer, a later request sends the ids again.
        """
        self._spans.pop(rollout_id, None)
        self._consumed.append(rollout_id)
        if len(self._consumed) % _CONSUMED_AT_ONCE:
            return
        consumed, self._consumed = self._consumed, []
        try:
            await self._post(CONSUMED, consumed)
        except STORE_ERRORS:
            self._consumed = consumed + self._consumed

    async def _post(self, path: str, body: Any) -> Any:
        return await self._request_json("post", path.removeprefix("/v1/agl"), json=body)


def is_refusal(status: int) -> bool:
    """Return whether the store would answer a repeated request with the same HTTP error `status`."""
    return status >= 400 and status not in _AWAY


@contextmanager
def watched_store(address: str, who: str, say: Callable[[str], None]) -> Iterator[None]:
    """Report with `say` that the store at `address` is down and `who` waits, and that the store is back.

    `say` is called on the running event loop. A thread checks the store's health, because a busy event loop would
    mistake its own delay for an outage.
    """
    loop, closed = asyncio.get_running_loop(), threading.Event()

    def say_inside(text: str) -> None:
        if not closed.is_set():
            say(text)

    def say_on_loop(text: str) -> None:
        with suppress(RuntimeError):  # the event loop is closed
            loop.call_soon_threadsafe(say_inside, text)

    outage = Outage(f"The store at {address}", say_on_loop)
    threading.Thread(target=_ask, args=(address, who, outage, closed), name="store watch", daemon=True).start()
    try:
        yield
    finally:
        closed.set()


def _ask(address: str, who: str, outage: Outage, closed: threading.Event) -> None:
    answered, failed = time.monotonic(), 0
    while not closed.wait(_PAUSE_S):
        try:
            DIRECTLY.open(address + HEALTH_PATH, timeout=_WATCH_TIMEOUT_S).close()
        except (OSError, http.client.HTTPException) as error:
            failed += 1
            silent_s = time.monotonic() - answered
            if failed > 1 and silent_s >= _SILENT_S:  # one failure can mean that this process was suspended
                why = getattr(error, "reason", error)
                outage.begin(f"does not answer, for {silent_s:.0f} s now ({why}); {who} waits for it")
        else:
            answered, failed = time.monotonic(), 0
            outage.end()
