"""Open the models of a conversation by name, and keep the two that were used last."""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass

from sql_agent.chat.conversation import ChatModel

KEPT = 2  # two can be seen side by side; the weights of each stay in memory


@dataclass
class _Opened:
    """Counts the users of an open model; `context` closes it."""

    model: ChatModel
    context: AbstractContextManager[ChatModel]
    users: int = 0


class ChatModels:
    """Opens models by name with `open_model`, from any thread, and keeps the `KEPT` models that were used last.

    A model in use is never closed, so more than `KEPT` may be open.
    """

    def __init__(self, open_model: Callable[[str], AbstractContextManager[ChatModel]]) -> None:
        self._open_model = open_model
        self._opened: OrderedDict[str, _Opened] = OrderedDict()  # least recently used first
        self._lock = threading.Lock()  # of `_opened`; held for a moment only
        self._opening = threading.Lock()  # held while a model is opened, which may take minutes

    def is_open(self, name: str) -> bool:
        """Return whether `name` can be asked at once."""
        return name in self._opened

    @contextmanager
    def use(self, name: str) -> Iterator[ChatModel]:
        """Yield the model `name`, after opening it where it is not open. Raises what `open_model` raises."""
        opened = self.acquire(name)
        try:
            yield opened
        finally:
            self.release(name)

    def acquire(self, name: str) -> ChatModel:
        """Return the model `name`, which stays open until `release`; one that is not open may take minutes."""
        if (model := self._taken(name)) is not None:
            return model
        with self._opening:
            if (model := self._taken(name)) is not None:  # another thread opened it meanwhile
                return model
            self._close_unused(KEPT - 1)  # before, because both would have to fit into memory
            context = self._open_model(name)
            opened = _Opened(context.__enter__(), context, users=1)
            with self._lock:
                self._opened[name] = opened
            return opened.model

    def release(self, name: str) -> None:
        """End one use of the model `name`; a later question may close it."""
        with self._lock:
            self._opened[name].users -= 1

    def close(self) -> None:
        """Close all models that are not in use."""
        with self._opening:
            self._close_unused(0)

    def _taken(self, name: str) -> ChatModel | None:
        with self._lock:
            if name not in self._opened:
                return None
            self._opened.move_to_end(name)
            self._opened[name].users += 1
            return self._opened[name].model

    def _close_unused(self, keep: int) -> None:
        with self._lock:
            unused = [name for name, opened in self._opened.items() if not opened.users]
            closing = [self._opened.pop(name) for name in unused[: max(0, len(self._opened) - keep)]]
        for opened in closing:
            opened.context.__exit__(None, None, None)
