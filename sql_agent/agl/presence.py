"""Let an algorithm and its runners see over the store whether the other is alive."""

from __future__ import annotations

import asyncio
import contextlib
import http.client
import threading
import urllib.request
from collections import Counter
from typing import Literal

import agentlightning as agl
import aiohttp
from pydantic import BaseModel

from sql_agent.agl.run_role import DIRECTLY

BEAT_S = 1.0
STORE_ERRORS = (aiohttp.ClientError, OSError, TimeoutError, RuntimeError)  # of a store that does not answer
_SILENT_BEATS = 5
_BEAT_TIMEOUT_S = 5.0
_LAST_S = 2.0  # for the last announcement of an algorithm
# Algorithms are entered among the workers, because the store notes the time of a worker's sign of life.
_ALGORITHM = "sql-agent-algorithm"

End = Literal["finished", "failed", "was interrupted"]


class Announcement(BaseModel):
    """Names the algorithm that uses a store.

    `session` differs for each start of one, `resources_id` has its settings, `end` says how it ended, if it did.
    """

    session: str
    run: str
    resources_id: str
    end: End | None = None


class Announcer:
    """Keeps `announcement` fresh in `store` until `close`."""

    def __init__(self, store: agl.LightningStore, announcement: Announcement) -> None:
        self._store = store
        self._announcement = announcement
        self._task = asyncio.create_task(self._beat())

    async def close(self, end: End) -> None:
        """Tell the runners how the algorithm ended."""
        self._task.cancel()
        await asyncio.gather(self._task, return_exceptions=True)
        self._announcement = self._announcement.model_copy(update={"end": end})
        with contextlib.suppress(*STORE_ERRORS):  # without a store there is nobody to tell
            async with asyncio.timeout(_LAST_S):  # the client tries for minutes when the store's host is gone
                await self._send()

    async def _beat(self) -> None:
        while True:
            with contextlib.suppress(*STORE_ERRORS):  # the scheduler reports a store that is lost
                await self._send()
            await asyncio.sleep(BEAT_S)

    async def _send(self) -> None:
        await self._store.update_worker(_ALGORITHM, self._announcement.model_dump())


async def read_announcement(store: agl.LightningStore) -> tuple[Announcement, float] | None:
    """Return the announcement of the algorithm that used `store` last, and the time of its last sign of life.

    The time is that of the store's clock. Returns None when there was no algorithm; raises one of STORE_ERRORS when the
    store does not answer.
    """
    worker = await store.get_worker_by_id(_ALGORITHM)
    if worker is None:
        return None
    return Announcement.model_validate(worker.heartbeat_stats), worker.last_heartbeat_time or 0.0


class Heartbeat:
    """Sends a sign of life of the runner `worker_id` to the store at `address` each second, until `stop`.

    A thread of its own does so, because an event loop that is busy for seconds is not dead.
    """

    def __init__(self, address: str, worker_id: str) -> None:
        self._request = urllib.request.Request(f"{address}/v1/agl/workers/{worker_id}", method="POST")  # noqa: S310  the run's
        self._stopped = threading.Event()
        threading.Thread(target=self._beat, name="heartbeat", daemon=True).start()

    def stop(self) -> None:
        """End the signs of life."""
        self._stopped.set()

    def _beat(self) -> None:
        while not self._stopped.wait(BEAT_S):
            with contextlib.suppress(OSError, http.client.HTTPException):  # it goes on when the store is back
                DIRECTLY.open(self._request, timeout=_BEAT_TIMEOUT_S).close()


class SilentRunners:
    """Finds the runners of `store` that lived and give no sign of life any more."""

    def __init__(self, store: agl.LightningStore) -> None:
        self._store = store
        self._last: dict[str, float] | None = None
        self._missed: Counter[str] = Counter()
        self._alive: set[str] = set()

    async def poll(self) -> list[str]:
        """Return the ids of runners that have fallen silent since the last poll; call it every BEAT_S seconds.

        Polls are counted and not seconds, because after a store's own pause all runners seem silent.
        """
        beats = {
            worker.worker_id: worker.last_heartbeat_time or 0.0
            for worker in await self._store.query_workers()
            if worker.worker_id != _ALGORITHM
        }
        if self._last is not None:
            for worker, time in beats.items():
                if time != self._last.get(worker):
                    self._alive.add(worker)
                    self._missed[worker] = 0
                else:
                    self._missed[worker] += 1
        self._last = beats
        silent = sorted(worker for worker in self._alive if self._missed[worker] >= _SILENT_BEATS)
        self._alive.difference_update(silent)
        return silent
