"""Report each runner or proxy that dies, and end the rollouts it had in hand, so that others run them again."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import agentlightning as agl

from sql_agent.agl.runner import worker_id
from sql_agent.agl.store import lose_rollouts
from sql_agent.errors import TrainingError
from sql_agent.system.supervisor import Ended

_LATE_S = 1.0  # after which a store has handled the last request of a process that died


class Recovery:
    """Handles the ends of processes: `say` gets a line for each, `fail` the error when one cannot be replaced.

    `proxy_of_resource` names the proxy behind each of the store's resources, which the algorithm adds to it.
    """

    def __init__(
        self, store: agl.LightningStore, say: Callable[[str], None], fail: Callable[[TrainingError], None]
    ) -> None:
        self.proxy_of_resource: dict[str, str] = {}
        self._store = store
        self._say = say
        self._fail = fail
        self._tasks: set[asyncio.Task[None]] = set()

    def handle(self, ended: Ended) -> None:
        """Handle the end of one process on the running event loop."""
        if ended.finished:
            return
        if not ended.replaced:
            self._fail(
                TrainingError(
                    f"{ended.name} {ended.how} and cannot be replaced",
                    hint="see the lines above and proxy*.log in the run's folder, repair the cause, then --resume",
                )
            )
            return
        task = asyncio.create_task(self._recover(ended))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _recover(self, ended: Ended) -> None:
        said = f"{ended.name} (process {ended.pid}) {ended.how}; another took its place"
        reason, worker, proxies = f"{ended.name} {ended.how}", worker_id(ended.pid), self.proxy_of_resource
        try:
            lost = await lose_rollouts(
                self._store,
                reason,
                is_lost=lambda rollout, by: by == worker or proxies.get(rollout.resources_id or "") == ended.name,
            )
            self._say(f"{said}; {lost} rollouts are run again." if lost else f"{said}; no rollout was lost.")
            await asyncio.sleep(_LATE_S)
            await lose_rollouts(self._store, reason, is_lost=lambda _, by: by == worker)
        except Exception as error:  # whichever error a store raises: the rollouts then end by their time limit
            self._say(f"{said}, but its rollouts could not be looked up: {type(error).__name__}: {error}")
