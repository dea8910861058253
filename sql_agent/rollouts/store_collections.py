"""Keep a store's objects for one event loop: without locks, without metrics, and looked up by their keys."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import AbstractAsyncContextManager, nullcontext, suppress
from typing import Any

import agentlightning as agl
from agentlightning.store.collection import InMemoryLightningCollections
from agentlightning.store.collection.memory import ListBasedCollection

_NOTHING = nullcontext()


class OneLoopCollections(InMemoryLightningCollections):  # type: ignore[misc]
    """Holds what agent-lightning's collections in memory hold, for a store that one event loop uses.

    Those take up to four locks for a call, and enter a context for metrics around each lock and each look-up, which was
    a third of the store's time. Tasks need no lock, because no operation on a collection waits for anything.
    """

    def __init__(self) -> None:
        super().__init__("asyncio")
        self._unlocked = nullcontext(self)
        self._rollouts = KeyedCollection([], agl.Rollout, ["rollout_id"])
        self._attempts = KeyedCollection([], agl.Attempt, ["rollout_id", "attempt_id"])
        self._spans = KeyedCollection([], agl.Span, ["rollout_id", "attempt_id", "span_id"])
        for untracked in (self.resources, self.workers, self.rollout_queue, self.span_sequence_ids):
            untracked.tracking_context = _untracked

    def atomic(
        self, *, mode: Any = "rw", snapshot: bool = False, labels: Sequence[Any] | None = None, **kwargs: Any
    ) -> AbstractAsyncContextManager[OneLoopCollections]:
        """Return a context of these collections."""
        return self._unlocked


class KeyedCollection(ListBasedCollection[Any]):  # type: ignore[misc]
    """Finds an object without a search when all of its keys are given."""

    def tracking_context(self, operation: str, collection: str) -> AbstractAsyncContextManager[None]:
        """Measure nothing."""
        return _NOTHING

    async def get(self, filter: Any = None, sort: Any = None) -> Any:  # noqa: A002  as the base class names it
        """Return the first object that matches `filter`, or None."""
        if filter and len(filter) == len(self.primary_keys()):
            with suppress(KeyError):  # there is none, or the filter names something else than the keys
                return self._found(filter)
        return await super().get(filter, sort)

    def _found(self, keys: Mapping[str, Mapping[str, str]]) -> Any:
        found: Any = self._items
        for name in self.primary_keys():
            found = found[keys[name]["exact"]]
        return found


def _untracked(_operation: str, _collection: str) -> AbstractAsyncContextManager[None]:
    return _NOTHING
