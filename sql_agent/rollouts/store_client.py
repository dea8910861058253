"""Client of a store in another process: `sql-agent store`, `agl store`, or the own store of a run."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final, TypeGuard

import agentlightning as agl
import aiohttp

from sql_agent.rollouts.run_role import StoreAddress
from sql_agent.system.servers import bearer

QUEUED: Final = ("queuing", "requeuing")  # statuses of a rollout that no runner has taken
STARTED: Final = ("preparing", "running")  # statuses of a rollout that a runner has taken
LOST = "lost"  # key in the metadata of a rollout whose process died; the value is the reason

STORE_ERRORS = (aiohttp.ClientError, OSError, TimeoutError, RuntimeError)  # raised when a store is down
_AWAY = (404, 405, 408, 425, 429, 502, 503, 504)  # HTTP statuses of a gateway whose store is down


class StoreClient(agl.LightningStoreClient):  # type: ignore[misc]
    """agent-lightning's client with a bearer token; `options` are those of agent-lightning's client."""

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
        """Take queued rollouts. Raises STORE_ERRORS or ValueError where the base class would return no rollouts."""
        if not limit:
            return []
        session = await self._get_session()
        wanted = {"limit": limit, "worker_id": worker_id}
        async with session.post(f"{self.server_address}/queues/rollouts/dequeue", json=wanted) as response:
            response.raise_for_status()
            return [agl.AttemptedRollout.model_validate(rollout) for rollout in await response.json()]


def is_refusal(error: Exception) -> TypeGuard[aiohttp.ClientResponseError]:
    """Return whether `error` is an HTTP error with which the store would answer a repeated request too."""
    return isinstance(error, aiohttp.ClientResponseError) and error.status >= 400 and error.status not in _AWAY


async def fail_rollouts(store: agl.LightningStore, reason: str, *, of: Callable[[agl.Rollout, str], bool]) -> int:
    """Fail the started rollouts for which `of(rollout, worker_id)` is true, as lost for `reason`.

    Return the number of failed rollouts.
    """
    lost = 0
    for rollout in await store.query_rollouts(status_in=list(STARTED)):
        attempt = getattr(rollout, "attempt", None)
        if attempt is not None and of(rollout, attempt.worker_id or ""):
            metadata = (rollout.metadata or {}) | {LOST: reason}
            await store.update_rollout(rollout.rollout_id, status="failed", metadata=metadata)
            lost += 1
    return lost
