"""Report each dead runner or LLM proxy and fail its rollouts, so that `retrying_scheduler.py` runs them again."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable, Collection
from contextlib import suppress

import agentlightning as agl

from sql_agent.errors import TrainingError
from sql_agent.rollouts.lease import BEAT_S, LEASE_ROW
from sql_agent.rollouts.runner import worker_id
from sql_agent.rollouts.store_client import QUEUED, STARTED, STORE_ERRORS, fail_rollouts
from sql_agent.rollouts.supervisor import Ended

_FIRST_POLLS = 4  # polls after which a live runner has been seen
_LATE_S = 1.0  # seconds until a store has handled a dead process's last request
_SILENT_BEATS = 5  # missed heartbeats after which a runner counts as dead


class Recovery:
    """Handles each process that ends: prints a line with `say`, and fails the process's rollouts.

    `fail` is called with the error if a process cannot be replaced. `routes` maps resource ids of the store to names
    of proxies, once rollouts are scheduled. When a proxy dies, `route_died` is called with its resource ids and the
    reason.
    """

    def __init__(
        self, store: agl.LightningStore, say: Callable[[str], None], fail: Callable[[TrainingError], None]
    ) -> None:
        self.routes: dict[str, str] = {}
        self.route_died: Callable[[Collection[str], str], None] = lambda _resources, _reason: None
        self._store = store
        self._say = say
        self._fail = fail
        self._tasks: set[asyncio.Task[None]] = set()

    def handle(self, ended: Ended) -> None:
        """Report a process that ended, and fail its rollouts in a task of the running event loop."""
        if ended.finished:
            return
        if not ended.replaced:
            self._fail(
                TrainingError(
                    f"{ended.name} {ended.how} and cannot be replaced",
                    hint="see the lines above and proxy*.log in its folder, repair the cause, then start it again",
                )
            )
            return
        routes = {resource for resource, proxy in self.routes.items() if proxy == ended.name}
        self.route_died(routes, f"{ended.name} {ended.how}")
        task = asyncio.create_task(self._recover(ended, routes))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def watch_runners(self) -> None:
        """Fail the rollouts of each runner whose heartbeats stop, until cancelled."""
        runners, polls, waits = SilentRunners(self._store), 0, False
        while True:
            with suppress(*STORE_ERRORS):  # the scheduler reports a lost store
                if silent := await runners.poll():
                    reason = f"{', '.join(silent)} gave no sign of life"
                    lost = await fail_rollouts(self._store, reason, of=lambda _, by: by in silent)
                    self._say(f"Runner {reason}; {_rerun(lost)}")
                polls += 1
                if waits != (polls >= _FIRST_POLLS and not runners.alive):
                    waits = not waits
                    self._say("No runner uses the store; the run waits for one." if waits else "A runner is there.")
            await asyncio.sleep(BEAT_S)

    async def _recover(self, ended: Ended, routes: Collection[str]) -> None:
        said = f"{ended.name} (process {ended.pid}) {ended.how}; another took its place"
        reason, worker = f"{ended.name} {ended.how}", worker_id(ended.pid)
        try:
            lost = await fail_rollouts(
                self._store, reason, of=lambda rollout, by: by == worker or rollout.resources_id in routes
            )
            self._say(f"{said}; {_rerun(lost)}")
            await asyncio.sleep(_LATE_S)
            await fail_rollouts(self._store, reason, of=lambda _, by: by == worker)
        except Exception as error:  # any error of the store: the time limit then ends the rollouts
            self._say(f"{said}, but its rollouts could not be looked up: {type(error).__name__}: {error}")


def _rerun(lost: int) -> str:
    return f"{lost} rollouts are run again." if lost else "no rollout was lost."


class SilentRunners:
    """Finds runners of `store` whose heartbeats have stopped; `alive` are the ids of runners with heartbeats."""

    def __init__(self, store: agl.LightningStore) -> None:
        self._store = store
        self._last: dict[str, float] | None = None
        self._missed: Counter[str] = Counter()
        self.alive: set[str] = set()

    async def poll(self) -> list[str]:
        """Return the ids of the runners found silent in this poll; call this every BEAT_S seconds.

        A runner is silent after five polls without a new heartbeat. Polls are counted instead of seconds, because after
        a pause of the store all runners would seem silent.
        """
        beats = {
            worker.worker_id: worker.last_heartbeat_time or 0.0
            for worker in await self._store.query_workers()
            if worker.worker_id != LEASE_ROW
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


async def cancel_stale_rollouts(store: agl.LightningStore) -> int:
    """Cancel the unfinished rollouts of an earlier algorithm, whose proxy is gone; return their number."""
    stale = await store.query_rollouts(status_in=[*QUEUED, *STARTED])
    for rollout in stale:
        await store.update_rollout(rollout.rollout_id, status="cancelled")
    return len(stale)
