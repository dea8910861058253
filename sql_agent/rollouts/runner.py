"""Run many rollouts at once in the event loop of a runner process."""

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
import time
import urllib.request
from collections.abc import Sequence
from functools import partial
from typing import Any

import agentlightning as agl
import aiohttp

from sql_agent.errors import SqlAgentError
from sql_agent.rollouts.lease import BEAT_S
from sql_agent.rollouts.run_role import DIRECTLY, StoreAddress
from sql_agent.rollouts.store_client import AglStoreClient, is_refusal
from sql_agent.rollouts.store_protocol import STORE_ERRORS, EndedAttempt, batch_delay_s, fail_rollouts
from sql_agent.system.messages import Outage
from sql_agent.system.servers import bearer

# Enough to fill a runner fast, and few enough to leave rollouts for other runners.
_DEQUEUE_LIMIT = 4  # rollouts taken per request, or as many as the request reports as ended
_DEQUEUE_PAUSE_S = 0.005  # between two requests while the queue has rollouts
_POLL_S = 0.2  # between two requests while nothing ends and the queue is empty
_BEAT_TIMEOUT_S = 5.0

logger = logging.getLogger(__name__)

# A random part of worker ids, because containers can share a host name and have equal process ids.
_FAMILY = secrets.token_hex(3)


def worker_id(pid: int) -> str:
    """Return the worker id of the runner process `pid`, unique across hosts and containers."""
    return f"{socket.gethostname()}-{pid}-{_FAMILY}"


class ConcurrentRunner:
    """Runs up to `concurrency` rollouts of `store` at once with `agent`, until `run` is cancelled.

    One request to the store reports ended rollouts and takes queued ones: soon after a rollout has ended, else every
    _POLL_S seconds. agent-lightning's own runner runs one rollout at a time. A rollout mostly waits for the model, so
    a process for each rollout would waste memory and start-up time.
    """

    def __init__(self, agent: agl.LitAgent[Any], store: AglStoreClient, *, concurrency: int) -> None:
        self._agent = agent
        self._store = store
        self._concurrency = concurrency
        self._worker = worker_id(os.getpid())
        self._has_ended = asyncio.Event()
        self._ended: list[EndedAttempt] = []  # not yet reported to the store
        self._in_hand: set[str] = set()  # ids of rollouts that run, or whose end is not yet reported
        self._may_have_lost_rollouts = False  # true after a request without an answer
        self._resources: dict[str, Any] = {}  # by id; resources never change
        self._refusal = Outage(f"The store at {store.server_address_root}", partial(print, flush=True))

    async def run(self) -> None:
        """Run queued rollouts of the store until cancelled, which also cancels the running rollouts."""
        heartbeat = Heartbeat(StoreAddress(self._store.server_address_root, self._store.token), self._worker)
        running: set[asyncio.Task[None]] = set()
        try:
            while True:
                running = {task for task in running if not task.done()}
                asked, limit = time.monotonic(), self._limit(len(running))
                taken = await self._report_and_take(limit)
                running |= {asyncio.create_task(self._run_rollout(rollout)) for rollout in taken}
                if limit and len(taken) == limit and len(running) < self._concurrency:
                    await asyncio.sleep(_DEQUEUE_PAUSE_S)
                else:
                    await self._next_end(took_s=time.monotonic() - asked)
        finally:
            heartbeat.stop()
            for task in running:
                task.cancel()
            await asyncio.gather(*running, return_exceptions=True)

    def _limit(self, running: int) -> int:
        return min(max(_DEQUEUE_LIMIT, len(self._ended)), self._concurrency - running)

    async def _next_end(self, *, took_s: float) -> None:
        """Wait at most _POLL_S seconds until a rollout ends; the last request to the store took `took_s` seconds."""
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(self._has_ended.wait(), _POLL_S)
            await asyncio.sleep(batch_delay_s(took_s))
        self._has_ended.clear()

    async def _report_and_take(self, limit: int) -> Sequence[agl.AttemptedRollout]:
        """Report ended rollouts, and take up to `limit` queued ones; after an error the report is repeated later."""
        if not self._ended and not limit:
            return []
        ended, self._ended = self._ended, []
        try:
            await self._fail_lost_rollouts()
            taken = await self._store.report_and_take(ended, worker_id=self._worker, limit=limit)
        except (*STORE_ERRORS, ValueError) as error:
            # Not a warning, because the report is repeated, and the store may stop before the runners.
            logger.info("the store did not take %d ended rollouts: %r", len(ended), error)
            self._ended = ended + self._ended
            self._may_have_lost_rollouts = True
            if isinstance(error, ValueError) or (
                isinstance(error, aiohttp.ClientResponseError) and is_refusal(error.status)
            ):
                self._refusal.begin(f"gives a runner no rollouts: {type(error).__name__}: {error}; it is asked again")
            return []
        self._refusal.end()
        self._in_hand.difference_update(attempt.rollout_id for attempt in ended)
        self._in_hand.update(rollout.rollout_id for rollout in taken)
        return taken

    async def _fail_lost_rollouts(self) -> None:
        """Fail the rollouts in answers that never arrived, so that the algorithm runs these rollouts again."""
        if self._may_have_lost_rollouts:
            await fail_rollouts(
                self._store,
                "the answer that gave it to a runner was lost",
                of=lambda rollout, by: by == self._worker and rollout.rollout_id not in self._in_hand,
            )
            self._may_have_lost_rollouts = False

    async def _run_rollout(self, rollout: agl.AttemptedRollout) -> None:
        """Run the agent on one rollout, and add the result to the next report."""
        run = self._agent.training_rollout_async if rollout.mode == "train" else self._agent.validation_rollout_async
        spans: Sequence[agl.Span] = ()
        try:
            spans = await run(rollout.input, await self._resources_of(rollout.resources_id), rollout)
            status = "succeeded"
        except (aiohttp.ClientError, ConnectionError, SqlAgentError) as error:  # a traceback adds nothing
            logger.warning("rollout %s failed: %s: %s", rollout.rollout_id, type(error).__name__, error)
            status = "failed"
        except Exception:  # any error: the algorithm counts the rollout and runs it again
            logger.exception("rollout %s failed", rollout.rollout_id)
            status = "failed"
        end_without_descriptors()
        attempt_id = rollout.attempt.attempt_id
        self._ended.append(
            EndedAttempt(rollout_id=rollout.rollout_id, attempt_id=attempt_id, status=status, spans=spans)
        )
        self._has_ended.set()

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
        """Stop sending heartbeats."""
        self._stopped.set()

    def _beat(self) -> None:
        while not self._stopped.wait(BEAT_S):
            with contextlib.suppress(OSError, http.client.HTTPException):  # heartbeats continue when the store is back
                DIRECTLY.open(self._request, timeout=_BEAT_TIMEOUT_S).close()


def end_without_descriptors() -> None:
    """Exit with the code EMFILE if no file descriptor is left, so that the supervisor replaces this process.

    Without file descriptors, all later rollouts would be lost with a connection error.
    """
    try:
        os.close(os.open(os.devnull, os.O_RDONLY))
    except OSError as error:
        if error.errno == errno.EMFILE:
            os._exit(errno.EMFILE)
        raise
