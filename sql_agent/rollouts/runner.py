"""A runner that takes rollouts from the store and runs many of them at once in one event loop."""

from __future__ import annotations

import asyncio
import contextlib
import errno
import http.client
import logging
import os
import secrets
import socket
import threading
import urllib.request
from collections.abc import Sequence
from functools import partial
from typing import Any

import agentlightning as agl
import aiohttp
from opentelemetry.sdk.trace import ReadableSpan

from sql_agent.errors import SqlAgentError, TrainingError
from sql_agent.rollouts.lease import BEAT_S
from sql_agent.rollouts.run_role import DIRECTLY, StoreAddress
from sql_agent.rollouts.spans import SpanExporter
from sql_agent.rollouts.store import STORE_ERRORS, StoreClient, fail_rollouts, is_refusal
from sql_agent.system.messages import Outage
from sql_agent.system.servers import bearer

_DEQUEUE_LIMIT = 4  # maximum number of rollouts per request: fills a runner fast, leaves some for others
_DEQUEUE_PAUSE_S = 0.005  # pause between two requests if the queue has rollouts and this runner is not full
_BUSY_PAUSE_S = 0.03  # pause while this runner is full, so that the next request takes several rollouts
_POLL_S = 0.2  # pause while the queue is empty
_REPEAT_S = 1.0  # pause between two reports of the same end of a rollout
_BEAT_TIMEOUT_S = 5.0

logger = logging.getLogger(__name__)

# A random part of worker ids, because containers can share a host name and have equal process ids.
_FAMILY = secrets.token_hex(3)


def worker_id(pid: int) -> str:
    """Return the worker id of the runner process `pid`; the id is unique across hosts and containers."""
    return f"{socket.gethostname()}-{pid}-{_FAMILY}"


class ConcurrentRunner:
    """Runs up to `concurrency` rollouts of `store` at once with `agent`.

    agent-lightning's own runner runs one rollout at a time. A rollout mostly waits for the model, so a process for each
    rollout would waste memory and start-up time.
    """

    def __init__(self, agent: agl.LitAgent[Any], store: StoreClient, *, concurrency: int) -> None:
        self._agent = agent
        self._store = store
        self._concurrency = concurrency
        self._worker = worker_id(os.getpid())
        self._exporter = SpanExporter()
        self._in_hand: set[str] = set()  # ids of rollouts that run, or whose end is not yet reported
        self._answer_lost = False  # whether an answer of the store, perhaps with rollouts, was lost
        self._resources: dict[str, Any] = {}  # by id; resources never change
        self._refusal = Outage(f"The store at {store.server_address_root}", partial(print, flush=True))

    async def run(self) -> None:
        """Run queued rollouts until cancelled; the running rollouts are then cancelled too."""
        heartbeat = Heartbeat(StoreAddress(self._store.server_address_root, self._store.token), self._worker)
        running: set[asyncio.Task[None]] = set()
        try:
            while True:
                running = {task for task in running if not task.done()}
                limit = min(_DEQUEUE_LIMIT, self._concurrency - len(running))
                taken = await self._take(limit)
                running |= {asyncio.create_task(self._run_rollout(rollout)) for rollout in taken}
                if len(taken) == limit < self._concurrency - len(running):
                    await asyncio.sleep(_DEQUEUE_PAUSE_S)
                else:
                    await asyncio.sleep(_POLL_S if limit and not taken else _BUSY_PAUSE_S)
        finally:
            heartbeat.stop()
            for task in running:
                task.cancel()
            await asyncio.gather(*running, return_exceptions=True)
            await self._exporter.close()

    async def _take(self, limit: int) -> Sequence[agl.AttemptedRollout]:
        """Take queued rollouts; if an answer was lost, first fail the rollouts in that answer: they are run again."""
        try:
            if self._answer_lost:
                await fail_rollouts(
                    self._store,
                    "the answer that gave it to a runner was lost",
                    of=lambda rollout, by: by == self._worker and rollout.rollout_id not in self._in_hand,
                )
                self._answer_lost = False
            taken = await self._store.dequeue_many_rollouts(limit=limit, worker_id=self._worker)
        except (*STORE_ERRORS, ValueError) as error:
            self._answer_lost = True
            # Not a warning, because the store may stop before the runners.
            logger.info("the store gave no rollouts: %r", error)
            if isinstance(error, ValueError) or is_refusal(error):
                self._refusal.begin(
                    f"gives a runner no rollouts: {type(error).__name__}: {error}; the runner asks again"
                )
            return []
        self._refusal.end()
        self._in_hand.update(rollout.rollout_id for rollout in taken)
        return taken

    async def _run_rollout(self, rollout: agl.AttemptedRollout) -> None:
        """Run the agent on a rollout, and report the end to the store until the store has taken the report."""
        run = self._agent.training_rollout_async if rollout.mode == "train" else self._agent.validation_rollout_async
        spans: Sequence[ReadableSpan] = ()
        status = "failed"
        try:
            spans = await run(rollout.input, await self._resources_of(rollout.resources_id), rollout)
            status = "succeeded"
        except (aiohttp.ClientError, ConnectionError, SqlAgentError) as error:  # a traceback adds nothing
            logger.warning("rollout %s failed: %s: %s", rollout.rollout_id, type(error).__name__, error)
        except Exception:  # any error: the algorithm counts the rollout and runs it again
            logger.exception("rollout %s failed", rollout.rollout_id)
        end_without_descriptors()
        while not await self._is_reported(rollout, status, spans):  # noqa: ASYNC110  no event tells
            await asyncio.sleep(_REPEAT_S)
        self._in_hand.discard(rollout.rollout_id)

    async def _is_reported(self, rollout: agl.AttemptedRollout, status: str, spans: Sequence[ReadableSpan]) -> bool:
        """Report the end of a rollout; return False if the store is down, so that the report must be repeated."""
        try:
            if spans:
                endpoint = self._store.otlp_traces_endpoint()
                try:
                    await self._exporter.send(endpoint, spans, token=self._store.token)
                except TrainingError as error:
                    # The store refuses these spans, or it is down and the next request fails too.
                    logger.info("the store did not take the spans of rollout %s: %s", rollout.rollout_id, error)
                    status = "failed"
            await self._store.update_attempt(rollout.rollout_id, rollout.attempt.attempt_id, status=status)
        except STORE_ERRORS as error:
            # Not a warning, because the store may stop before the runners.
            logger.info("the store did not take the end of rollout %s: %r", rollout.rollout_id, error)
            # A store that refuses the report has lost the rollout, which therefore ends by its time limit.
            return is_refusal(error)
        return True

    async def _resources_of(self, resources_id: str) -> Any:
        if resources_id not in self._resources:
            found = await self._store.get_resources_by_id(resources_id)
            if found is None:
                raise ConnectionError(f"the store has no resources {resources_id}, or does not answer")
            self._resources[resources_id] = found.resources
        return self._resources[resources_id]


class Heartbeat:
    """Sends a heartbeat of the runner `worker_id` to `store` every BEAT_S seconds, until `stop`.

    Heartbeats come from a thread, so that they continue while the event loop is busy.
    """

    def __init__(self, store: StoreAddress, worker_id: str) -> None:
        self._request = urllib.request.Request(  # noqa: S310  the URL of the run's store
            f"{store.url}/v1/agl/workers/{worker_id}", method="POST", headers=bearer(store.token)
        )
        self._stopped = threading.Event()
        threading.Thread(target=self._beat, name="heartbeat", daemon=True).start()

    def stop(self) -> None:
        self._stopped.set()

    def _beat(self) -> None:
        while not self._stopped.wait(BEAT_S):
            with contextlib.suppress(OSError, http.client.HTTPException):  # heartbeats continue when the store is back
                DIRECTLY.open(self._request, timeout=_BEAT_TIMEOUT_S).close()


def end_without_descriptors() -> None:
    """Exit with the code EMFILE if no file descriptor is left, so that the supervisor replaces this process.

    A process without descriptors would lose all later rollouts with a connection error.
    """
    try:
        os.close(os.open(os.devnull, os.O_RDONLY))
    except OSError as error:
        if error.errno == errno.EMFILE:
            os._exit(errno.EMFILE)
        raise
