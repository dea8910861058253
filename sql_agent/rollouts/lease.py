"""The lease on a store: a row that an algorithm (training process) renews, to keep other algorithms off the store."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Callable
from typing import Literal

import agentlightning as agl
from pydantic import BaseModel

from sql_agent.rollouts.store import STORE_ERRORS

BEAT_S = 0.75  # seconds between two renewals of the lease
# The lease is stored as the row of a worker, because stores record when a worker's row was updated.
LEASE_ROW = "sql-agent-algorithm"
_SILENT_S = 10.0  # time without a renewal after which a store considers its algorithm dead
_EXPIRY_BEATS = 3  # number of missed renewals after which another algorithm may take the lease
_RELEASE_S = 2.0  # time limit of the request that releases the lease

End = Literal["finished", "failed", "was interrupted"]


class Lease(BaseModel, frozen=True):
    """The content of the lease's row: which algorithm uses the store.

    `session` is a new id for each start of the algorithm, `run` is the run's name. `resources_id` is the store's id of
    the run's settings (None until the policy answers). `end` is how the algorithm ended (None while it runs).
    """

    session: str
    run: str
    resources_id: str | None = None
    end: End | None = None


class LeaseHolder:
    """Acquires, renews and releases the lease of `store` for one algorithm.

    If another algorithm takes over the lease, for example while this process is suspended, `on_loss` is called with the
    name of that algorithm's run.
    """

    def __init__(
        self, store: agl.LightningStore, session: str, run: str, on_loss: Callable[[str], object] = lambda _run: None
    ) -> None:
        self._store = store
        self._lease = Lease(session=session, run=run)
        self._on_loss = on_loss
        self._task: asyncio.Task[None] | None = None

    async def acquire(self) -> str | None:
        """Acquire the lease and return None; if another algorithm has the lease, return the name of its run.

        agent-lightning's stores have no compare-and-set. So an algorithm that finds the lease free writes the row, and
        checks BEAT_S seconds later that no other algorithm has overwritten the row. If several algorithms start
        together, the last writer gets the lease. Raises one of STORE_ERRORS when the store does not answer.
        """
        found = await read_lease(self._store)
        if found is not None and found[0].end is None:
            for _ in range(_EXPIRY_BEATS):
                await asyncio.sleep(BEAT_S)
                now = await read_lease(self._store)
                if now is not None and now != found and now[0].end is None:
                    return now[0].run
        await self._write()
        await asyncio.sleep(BEAT_S)
        if other := await self._other_holder():
            return other
        self._task = asyncio.create_task(self._renew())
        return None

    async def publish(self, resources_id: str) -> None:
        """Write the id of the run's settings into the lease. Raises one of STORE_ERRORS when the store is down."""
        self._lease = self._lease.model_copy(update={"resources_id": resources_id})
        await self._write()

    async def release(self, end: End) -> None:
        """Write `end` into the lease, unless another algorithm has taken over the lease."""
        if self._task is None:
            return
        has_lost = self._task.done()
        self._task.cancel()
        await asyncio.gather(self._task, return_exceptions=True)
        self._task = None
        if has_lost:
            return
        self._lease = self._lease.model_copy(update={"end": end})
        with contextlib.suppress(*STORE_ERRORS):
            async with asyncio.timeout(_RELEASE_S):  # the client would retry for minutes if the store's host is down
                await self._write()

    async def _renew(self) -> None:
        while True:
            await asyncio.sleep(BEAT_S)
            with contextlib.suppress(*STORE_ERRORS):  # the scheduler reports a lost store
                if other := await self._other_holder():
                    self._on_loss(other)
                    return
                await self._write()

    async def _other_holder(self) -> str | None:
        found = await read_lease(self._store)
        return found[0].run if found is not None and found[0].session != self._lease.session else None

    async def _write(self) -> None:
        await self._store.update_worker(LEASE_ROW, self._lease.model_dump())


async def running_run(store: agl.LightningStore) -> str | None:
    """Return the name of the run that uses `store`, which runs in this process; None if no run does."""
    found = await read_lease(store)
    if found is None or found[0].end is not None or time.time() - found[1] > _SILENT_S:
        return None
    return found[0].run


async def read_lease(store: agl.LightningStore) -> tuple[Lease, float] | None:
    """Return the lease of `store` and the Unix time of its last renewal on the store's clock; None without a lease.

    Raises one of STORE_ERRORS when the store does not answer.
    """
    for worker in await store.query_workers(worker_id_contains=LEASE_ROW):
        return Lease.model_validate(worker.heartbeat_stats), worker.last_heartbeat_time or 0.0
    return None
