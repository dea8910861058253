"""Let an algorithm and its runners see over the store whether the other is alive."""

from __future__ import annotations

import asyncio
import contextlib
import http.client
import threading
import urllib.request
from collections import Counter
from typing import Any, Literal

import agentlightning as agl
import aiohttp
from pydantic import BaseModel

from sql_agent.rollouts.run_role import DIRECTLY, StoreAddress
from sql_agent.system.tokens import bearer

BEAT_S = 0.75
STORE_ERRORS = (aiohttp.ClientError, OSError, TimeoutError, RuntimeError)  # of a store that does not answer
_SILENT_BEATS = 5
_BEAT_TIMEOUT_S = 5.0
_CLAIM_BEATS = 3
_LAST_S = 2.0  # for the last announcement of an algorithm
# Each session of an algorithm is entered as a worker, because the store notes the time of a worker's sign of life.
_ALGORITHM = "sql-agent-algorithm-"

End = Literal["finished", "failed", "was interrupted"]


class Announcement(BaseModel, frozen=True):
    """Names an algorithm that uses a store, or asks for it.

    `session` differs for each start of one, `holds` says that no other may use the store, `resources_id` has its
    settings once its policy answers, `end` says how it ended, if it did.
    """

    session: str
    run: str
    holds: bool = False
    resources_id: str | None = None
    end: End | None = None


class Announcer:
    """Tells runners and other algorithms that this one uses `store`, from `claim` until `close`."""

    def __init__(self, store: agl.LightningStore, announcement: Announcement) -> None:
        self._store = store
        self._announcement = announcement
        self._task: asyncio.Task[None] | None = None

    async def claim(self) -> str | None:
        """Claim the store for this algorithm: return None, or the run of a live algorithm that has it or gets it.

        Of several that begin at the same time the one with the first session gets it: each enters itself before it
        looks, so of two at least one sees the other. Takes three beats; raises one of STORE_ERRORS when the store
        does not answer.
        """
        await self._send()
        before = set(await _announcements(self._store))
        for _ in range(_CLAIM_BEATS):  # and not for a time, because a store that is slow is slow for the others too
            await asyncio.sleep(BEAT_S)
            await self._send()
        for other, beat in await _announcements(self._store):
            alive = other.end is None and (other, beat) not in before
            first = other.holds or other.session < self._announcement.session
            if alive and first and other.session != self._announcement.session:
                return other.run
        await self._change(holds=True)
        self._task = asyncio.create_task(self._beat())
        return None

    async def serve(self, resources_id: str) -> None:
        """Tell the runners where the settings are. Raises one of STORE_ERRORS when the store does not answer."""
        await self._change(resources_id=resources_id)

    async def close(self, end: End) -> None:
        """Tell the runners how the algorithm ended, once and if it had the store."""
        if self._task is None:
            return
        self._task.cancel()
        await asyncio.gather(self._task, return_exceptions=True)
        self._task = None
        with contextlib.suppress(*STORE_ERRORS):  # without a store there is nobody to tell
            async with asyncio.timeout(_LAST_S):  # the client tries for minutes when the store's host is gone
                await self._change(end=end)

    async def _beat(self) -> None:
        while True:
            with contextlib.suppress(*STORE_ERRORS):  # the scheduler reports a store that is lost
                await self._send()
            await asyncio.sleep(BEAT_S)

    async def _change(self, **changed: Any) -> None:
        self._announcement = self._announcement.model_copy(update=changed)
        await self._send()

    async def _send(self) -> None:
        await self._store.update_worker(_ALGORITHM + self._announcement.session, self._announcement.model_dump())


async def read_announcement(store: agl.LightningStore) -> tuple[Announcement, float] | None:
    """Return the announcement of the algorithm that had `store` last, and the time of its last sign of life.

    The time is that of the store's clock. Returns None when no algorithm had it; raises one of STORE_ERRORS when the
    store does not answer.
    """
    held = [found for found in await _announcements(store) if found[0].holds]
    return max(held, key=lambda found: found[1], default=None)


async def _announcements(store: agl.LightningStore) -> list[tuple[Announcement, float]]:
    """Return the announcement of each session, and the time of its last sign of life."""
    workers = await store.query_workers(worker_id_contains=_ALGORITHM)
    return [(Announcement.model_validate(at.heartbeat_stats), at.last_heartbeat_time or 0.0) for at in workers]


class Heartbeat:
    """Sends signs of life of the runner `worker_id` to `store`, one every BEAT_S seconds, until `stop`.

    A thread of its own does so, because an event loop that is busy for seconds is not dead.
    """

    def __init__(self, store: StoreAddress, worker_id: str) -> None:
        self._request = urllib.request.Request(  # noqa: S310  the run's
            f"{store.url}/v1/agl/workers/{worker_id}", method="POST", headers=bearer(store.token)
        )
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
    """Finds the runners of `store` that lived and give no sign of life any more; `alive` are those that do."""

    def __init__(self, store: agl.LightningStore) -> None:
        self._store = store
        self._last: dict[str, float] | None = None
        self._missed: Counter[str] = Counter()
        self.alive: set[str] = set()

    async def poll(self) -> list[str]:
        """Return the ids of runners that have fallen silent since the last poll; call it every BEAT_S seconds.

        Polls are counted and not seconds, because after a store's own pause all runners seem silent.
        """
        beats = {
            worker.worker_id: worker.last_heartbeat_time or 0.0
            for worker in await self._store.query_workers()
            if not worker.worker_id.startswith(_ALGORITHM)
        }
        if self._last is not None:
            for worker, time in beats.items():
                if time != self._last.get(worker):
                    self.alive.add(worker)
                    self._missed[worker] = 0
                else:
                    self._missed[worker] += 1
        self._last = beats
        silent = sorted(worker for worker in self.alive if self._missed[worker] >= _SILENT_BEATS)
        self.alive.difference_update(silent)
        return silent
