"""Open the models of a conversation by name."""

from __future__ import annotations

import threading
from collections.abc import Callable
from contextlib import AbstractContextManager, ExitStack
from dataclasses import dataclass

from sql_agent.config.endpoints import ModelEndpoint
from sql_agent.config.settings import Settings
from sql_agent.database import DatabasePool
from sql_agent.schemas import Lang
from sql_agent.tasks.task import Task

MOST_ASKED = 2  # models that answer a question: two answers can be read side by side


@dataclass(frozen=True)
class ChatModel:
    """A model that is open for questions, its task, settings, endpoint and databases; `name` is for people.

    `lang` is the language of the prompts, None for the language of each question.
    """

    name: str
    task: Task
    settings: Settings
    endpoint: ModelEndpoint
    databases: DatabasePool
    lang: Lang | None = None


class ChatModels:
    """Opens each model once with `open_model`, when it is first needed; all stay open until `close`.

    Any thread may call. While a model is opened, which may take minutes, the open ones can be asked.
    """

    def __init__(self, open_model: Callable[[str], AbstractContextManager[ChatModel]]) -> None:
        self._open_model = open_model
        self._opened: dict[str, ChatModel] = {}
        self._contexts = ExitStack()
        self._opening = threading.Lock()

    def is_open(self, name: str) -> bool:
        """Return whether `name` can be asked at once."""
        return name in self._opened

    def get(self, name: str) -> ChatModel:
        """Return the model `name`. Raises what `open_model` raises; the next call tries again."""
        if name not in self._opened:
            with self._opening:
                if name not in self._opened:  # another thread may have opened it meanwhile
                    self._opened[name] = self._contexts.enter_context(self._open_model(name))
        return self._opened[name]

    def close(self) -> None:
        """Close all models, after the one that is being opened."""
        with self._opening:
            self._contexts.close()
