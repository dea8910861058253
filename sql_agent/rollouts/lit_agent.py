"""The agent as a LitAgent of agent-lightning: run one rollout, and return its record and reward as a span."""

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
from sql_agent.rollouts.spans import SEQUENCE_HEADER, SpanOwner, record_span
from sql_agent.schemas import Question, RolloutRecord
from sql_agent.system.resources import ends_without_memory
from sql_agent.tasks.task import Task, load_task

_T = TypeVar("_T")

_ROLLOUT = re.compile(r".*/rollout/([^/]+)/attempt/")  # the rollout id in a path of the LLM proxy


@dataclass(frozen=True)
class _RunContext:
    """The objects that all rollouts of a run share in a runner process."""

    settings: Settings
    task: Task
    databases: DatabasePool
    judge: Judge


class SqlLitAgent(agl.LitAgent[dict[str, Any]]):  # type: ignore[misc]
    """Runs the agent on one question per rollout, with the settings of the run and of this host (`own`).

    `on_record` is called with the mode ("train" or "val") and the record of each rollout. A rollout returns one span
    with its `RolloutRecord` and reward. A dropped rollout has no reward (not 0) but a reason in its record.
    """

    def __init__(self, own: Settings, on_record: Callable[[str, RolloutRecord], None] | None = None) -> None:
        super().__init__()
        self._own = own
        self._on_record = on_record
        self._contexts: dict[str, _RunContext] = {}  # the key is the JSON of the run's settings
        self._numbers = CallNumbers()
        self._http: DefaultAsyncHttpxClient | None = None
        # For functions that would block the event loop for seconds. One thread, so that each context is opened once.
        self._opener = ThreadPoolExecutor(1, thread_name_prefix="opener")

    async def training_rollout_async(self, task: dict[str, Any], resources: Any, rollout: Any) -> list[Any]:
        """Run a training rollout; `task` is a Question as a dict, `resources` come from `route_resources`."""
        return await self._rollout(task, resources, rollout, is_training=True)

    async def validation_rollout_async(self, task: dict[str, Any], resources: Any, rollout: Any) -> list[Any]:
        return await self._rollout(task, resources, rollout, is_training=False)

    async def _rollout(self, task: dict[str, Any], resources: Any, rollout: Any, *, is_training: bool) -> list[Any]:
        context = await self._context(resources)
        settings = context.settings
        rollout_id, attempt_id = rollout.rollout_id, rollout.attempt.attempt_id
        llm = cast(agl.ProxyLLM, resources[RESOURCE])
        endpoint = ModelEndpoint(
            base_url=llm.get_base_url(rollout_id, attempt_id),
            model=llm.model,
            api_key=llm.api_key or NO_API_KEY,
            temperature=settings.agent.temperature if is_training else settings.agent.val_temperature,
        )
        question = Question.model_validate(task)
        if self._http is None:
            # The client ignores http_proxy: the run's LLM proxy is in the same network.
            self._http = shared_client(direct=True, on_request=self._numbers)
        try:
            # Without memory all later rollouts would fail too. The supervisor replaces a process that ends.
            with ends_without_memory():
                async with self._opened(context, question.database) as database:
                    record = await run_rollout(
                        question, context.task, endpoint, database, context.judge, settings, http_client=self._http
                    )
        except DatabaseFileError as error:  # the database cannot be opened; a failed query would be in the record
            record = unopened(question, error)
        finally:
            calls = self._numbers.pop(rollout_id)
        if self._on_record is not None:
            self._on_record(rollout.mode, record)
        return [record_span(record, SpanOwner(rollout_id, attempt_id, calls + 1))]

    @asynccontextmanager
    async def _opened(self, context: _RunContext, name: str | None) -> AsyncIterator[Database]:
        """Yield the database `name`, opened and closed in a thread, because opening starts processes."""
        opening = context.databases.of(name)
        database = await self._in_thread(opening.__enter__)
        try:
            yield database
        finally:
            await self._in_thread(partial(opening.__exit__, None, None, None))

    async def _context(self, resources: Mapping[str, Any]) -> _RunContext:
        """Return the task, databases and judge for the settings in `resources`, created at a run's first rollout.

        They are not created before the runner is forked, because a SQLite connection must not be used after a fork.
        """
        text = text_of(resources)
        if text not in self._contexts:
            with ends_without_memory():
                await self._in_thread(partial(self._open_context, text))
        return self._contexts[text]

    def _open_context(self, text: str) -> None:
        if text not in self._contexts:
            _, settings = settings_here(text, self._own)
            task = load_task(settings.task)
            self._contexts[text] = _RunContext(settings, task, task.databases(settings), task.judge(settings))

    async def _in_thread(self, function: Callable[[], _T]) -> _T:
        return await asyncio.get_running_loop().run_in_executor(self._opener, function)


class CallNumbers:
    """Request hook of an HTTP client that numbers the model calls of each rollout, from 1.

    The number becomes the sequence id of the call's span. Without a number, the LLM proxy would request a sequence id
    from the store, whose single thread is the bottleneck.
    """

    def __init__(self) -> None:
        self._calls: Counter[str] = Counter()  # {rollout id: number of calls}

    async def __call__(self, request: httpx2.Request) -> None:
        if match := _ROLLOUT.match(request.url.path):
            self._calls[match[1]] += 1
            request.headers[SEQUENCE_HEADER] = str(self._calls[match[1]])

    def pop(self, rollout_id: str) -> int:
        """Return the number of calls of an ended rollout, and delete its counter."""
        return self._calls.pop(rollout_id, 0)
