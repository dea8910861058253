"""The store of a run's own: it wakes the runners and says what ended, so that nobody has to ask."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import agentlightning as agl

from sql_agent.bell import Bell

OnEnd = Callable[[agl.Rollout], None]

_QUEUED = ("queuing", "requeuing")
_ENDED = ("succeeded", "failed", "cancelled")


class RunStore(agl.InMemoryLightningStore):  # type: ignore[misc]
    """A run's own store: rings `bell` for each rollout that is queued, and tells of those that end."""

    def __init__(self, bell: Bell, **options: Any) -> None:
        super().__init__(**options)
        self.on_end: Callable[[agl.Rollout], object] | None = None  # called from whichever thread ended the rollout
        self._bell = bell

    async def _post_update_rollout(
        self, rollouts: Sequence[tuple[agl.Rollout, Sequence[str]]], skip_enqueue: bool = False
    ) -> None:
        await super()._post_update_rollout(rollouts, skip_enqueue=skip_enqueue)
        for rollout, _ in rollouts:
            if rollout.status in _QUEUED:
                self._bell.ring()
            elif rollout.status in _ENDED and self.on_end is not None:
                self.on_end(rollout)


def tell_of_ends(store: Any, listener: OnEnd) -> bool:
    """Have `listener` called on this event loop with each rollout that ends; False if `store` is not a run's own."""
    own = getattr(store, "store", None)
    if not isinstance(own, RunStore):
        return False
    loop = asyncio.get_running_loop()
    own.on_end = lambda rollout: loop.call_soon_threadsafe(partial(listener, rollout))
    return True


def without_request_log(store: Any) -> None:
    """Take the layers that time and log each request out of a run's own store server: they are half of its work."""
    if isinstance(store, agl.LightningStoreServer) and store.app is not None:
        store.app.user_middleware.clear()
        store.app.middleware_stack = store.app.build_middleware_stack()
