"""Run the agent under agent-lightning: one run per attempt, its record and its reward written to the store."""

from __future__ import annotations

import asyncio
import re
from collections import Counter
from collections.abc import AsyncIterator, Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager
from dataclasses import dataclass
from functools import partial
from typing import Any, TypeVar, cast

import agentlightning as agl
import httpx2
from openai import DefaultAsyncHttpxClient

from sql_agent.agent.rollout import run_rollout, shared_client, unopened
from sql_agent.config.endpoints import NO_API_KEY, ModelEndpoint
from sql_agent.config.settings import Settings
from sql_agent.database import Database, DatabasePool
from sql_agent.errors import DatabaseFileError
from sql_agent.reward import Judge
from sql_agent.rollouts.run_settings import RESOURCE, settings_here, text_of
from sql_agent.rollouts.spans import SEQUENCE_HEADER, record_span
from sql_agent.schemas import Question, RolloutRecord
from sql_agent.system.memory import ends_without_memory
from sql_agent.tasks.task import Task, load_task

_T = TypeVar("_T")

_ROLLOUT = re.compile(r".*/rollout/([^/]+)/attempt/")  # in the path of an LLM proxy


@dataclass(frozen=True)
class _Kit:
    """What all rollouts of one run need in this process."""

    settings: Settings
    task: Task
    databases: DatabasePool
    judge: Judge


class SqlLitAgent(agl.LitAgent[dict[str, Any]]):  # type: ignore[misc]
    """Runs one question per rollout, with the settings of its run, which come from the store with the policy's address.

    Of `own`, the settings of this host, only what `settings_here` says is used. `on_record` gets each rollout's mode
    and record. A rollout returns one span: its `RolloutRecord` and, unless the rollout is dropped, its reward. The
    record of a dropped rollout has the reason; no reward of 0 is written in its place.
    """

    def __init__(self, own: Settings, on_record: Callable[[str, RolloutRecord], None] | None = None) -> None:
        super().__init__()
        self._own = own
        self._on_record = on_record
        self._kits: dict[str, _Kit] = {}  # by what the store handed over
        self._numbers = CallNumbers()
        self._http: DefaultAsyncHttpxClient | None = None
        # For what takes seconds or waits for a lock, because the event loop runs other rollouts meanwhile. One thread,
        # so that each kit is made once.
        self._opener = ThreadPoolExecutor(1, thread_name_prefix="opener")

    async def training_rollout_async(self, task: dict[str, Any], resources: Any, rollout: Any) -> list[Any]:
        """Run a training rollout and return its spans; `task` is a Question as a dict, `resources` has the proxy."""
        kit = await self._kit(resources)
        return await self._rollout(task, kit, _endpoint(resources, rollout, kit.settings.agent.temperature), rollout)

    async def validation_rollout_async(self, task: dict[str, Any], resources: Any, rollout: Any) -> list[Any]:
        """Run a validation rollout and return its spans; the arguments are those of a training rollout."""
        kit = await self._kit(resources)
        return await self._rollout(
            task, kit, _endpoint(resources, rollout, kit.settings.agent.val_temperature), rollout
        )

    async def _rollout(self, task: dict[str, Any], kit: _Kit, endpoint: ModelEndpoint, rollout: Any) -> list[Any]:
        question = Question.model_validate(task)
        if self._http is None:
            self._http = shared_client(direct=True, on_request=self._numbers)  # to the run's own proxy
        try:
            # All that follow would fail too, and the supervisor starts another process in place of one that ends.
            with ends_without_memory():
                async with self._opened(kit, question.database) as database:
                    record = await run_rollout(
                        question, kit.task, endpoint, database, kit.judge, kit.settings, http_client=self._http
                    )
        except DatabaseFileError as error:  # from opening it; an error of a query is in the record
            record = unopened(question, error)
        finally:
            calls = self._numbers.pop(rollout.rollout_id)
        if self._on_record is not None:
            self._on_record(rollout.mode, record)
        rollout_id, attempt_id = rollout.rollout_id, rollout.attempt.attempt_id
        return [record_span(record, rollout_id=rollout_id, attempt_id=attempt_id, sequence_id=calls + 1)]

    @asynccontextmanager
    async def _opened(self, kit: _Kit, name: str | None) -> AsyncIterator[Database]:
        """Yield the database `name`, opened and closed in a thread, because opening starts processes."""
        opening = kit.databases.of(name)
        database = await self._in_thread(opening.__enter__)
        try:
            yield database
        finally:
            await self._in_thread(partial(opening.__exit__, None, None, None))

    async def _kit(self, resources: Mapping[str, Any]) -> _Kit:
        """Return what the rollouts over `resources` need; it is made in the runner process, not before its fork.

        A SQLite connection must not be used after a fork.
        """
        text = text_of(resources)
        if text not in self._kits:
            with ends_without_memory():
                await self._in_thread(partial(self._make_kit, text))
        return self._kits[text]

    def _make_kit(self, text: str) -> None:
        if text not in self._kits:
            _, settings = settings_here(text, self._own)
            task = load_task(settings.task)
            self._kits[text] = _Kit(settings, task, task.databases(settings), task.judge(settings))

    async def _in_thread(self, function: Callable[[], _T]) -> _T:
        return await asyncio.get_running_loop().run_in_executor(self._opener, function)


def _endpoint(resources: Mapping[str, Any], rollout: Any, temperature: float) -> ModelEndpoint:
    llm = cast(agl.ProxyLLM, resources[RESOURCE])
    return ModelEndpoint(
        base_url=llm.get_base_url(rollout.rollout_id, rollout.attempt.attempt_id),
        model=llm.model,
        api_key=llm.api_key or NO_API_KEY,
        temperature=temperature,
    )


class CallNumbers:
    """Numbers the requests of each rollout to an LLM proxy, from 1; a request hook of an HTTP client.

    The number is the sequence id of the call's span. Without it the proxy would request one from the store, whose
    single thread is the bottleneck.
    """

    def __init__(self) -> None:
        self._made: Counter[str] = Counter()  # number of calls by rollout

    async def __call__(self, request: httpx2.Request) -> None:
        """Add the number to a request before it is sent, if it is a call of a rollout."""
        if match := _ROLLOUT.match(request.url.path):
            self._made[match[1]] += 1
            request.headers[SEQUENCE_HEADER] = str(self._made[match[1]])

    def pop(self, rollout_id: str) -> int:
        """Return the number of calls of an ended rollout, and forget the rollout."""
        return self._made.pop(rollout_id, 0)
