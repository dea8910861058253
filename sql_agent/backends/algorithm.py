"""What the algorithms of both backends share: a run that a signal ends in good order, and an error that is kept."""

from __future__ import annotations

import asyncio
from abc import abstractmethod
from collections.abc import Sequence
from typing import Any

import agentlightning as agl

from sql_agent.config.settings import Settings
from sql_agent.errors import SqlAgentError
from sql_agent.schemas import Question
from sql_agent.system.signals import handled_signals
from sql_agent.tracking.console import Ui
from sql_agent.tracking.run_log import RunLog


class TrainingAlgorithm(agl.Algorithm):  # type: ignore[misc]
    """An algorithm whose `_run` looks at `_stop` now and then.

    `error` holds what ended the run early, `interrupted` that a signal did; both because the trainer's `fit` swallows
    one and logs the other with a traceback.
    """

    stopping = "Stopping; interrupt again to stop at once."

    def __init__(self, settings: Settings, log: RunLog, ui: Ui, *, resume: bool) -> None:
        self._settings = settings
        self._log = log
        self._ui = ui
        self._resume = resume
        self._stop: asyncio.Event
        self.error: SqlAgentError | None = None
        self.interrupted = False

    async def run(self, train_dataset: Any = None, val_dataset: Any = None) -> None:
        """Train on `train_dataset` (a sequence of Question) and validate on `val_dataset` before and after."""
        self._stop = asyncio.Event()
        with handled_signals(self._interrupt):
            try:
                await self._run(train_dataset, val_dataset)
            except SqlAgentError as error:
                self.error = error

    @abstractmethod
    async def _run(self, train: Sequence[Question], val: Sequence[Question]) -> None:
        """The run itself; raises SqlAgentError for whatever ends it early."""

    def _interrupt(self) -> None:
        self.interrupted = True
        self._ui.say(self.stopping)
        self._stop.set()
