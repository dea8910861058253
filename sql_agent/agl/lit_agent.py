"""Run the agent under agent-lightning: one run per attempt, its record and its reward written to the store."""

from __future__ import annotations

from typing import Any, cast

import agentlightning as agl
from openai import DefaultAsyncHttpxClient

from sql_agent.agent.agent import ModelEndpoint, shared_client
from sql_agent.agent.rollout import run_rollout
from sql_agent.config.settings import Settings
from sql_agent.data.task import load_task
from sql_agent.database import DatabasePool
from sql_agent.reward import Judge
from sql_agent.schemas import Question

RESOURCE = "main_llm"


class SqlLitAgent(agl.LitAgent[dict[str, Any]]):  # type: ignore[misc]
    """Runs one question per rollout; training and validation have a temperature and a top_p of their own.

    A rollout returns its spans: its `RolloutRecord` as an object and, unless the rollout is dropped, its reward. The
    record of a dropped rollout holds the reason; no reward of 0 is written in its place.
    """

    def __init__(self, settings: Settings) -> None:
        super().__init__()
        self._settings = settings
        self._task = load_task(settings.task)
        self._databases: DatabasePool | None = None
        self._judge: Judge | None = None
        self._http: DefaultAsyncHttpxClient | None = None

    async def training_rollout_async(self, task: dict[str, Any], resources: Any, rollout: Any) -> list[Any]:
        """Run a training rollout and return its spans; `task` is a Question as a dict, `resources` has the proxy."""
        agent = self._settings.agent
        return await self._rollout(task, resources, rollout, agent.temperature, agent.top_p)

    async def validation_rollout_async(self, task: dict[str, Any], resources: Any, rollout: Any) -> list[Any]:
        """Run a validation rollout and return its spans; the arguments are those of a training rollout."""
        agent = self._settings.agent
        return await self._rollout(task, resources, rollout, agent.val_temperature, agent.val_top_p)

    async def _rollout(
        self, task: dict[str, Any], resources: Any, rollout: Any, temperature: float, top_p: float
    ) -> list[Any]:
        question = Question.model_validate(task)
        llm = cast(agl.ProxyLLM, resources[RESOURCE])
        endpoint = ModelEndpoint(
            base_url=llm.get_base_url(rollout.rollout_id, rollout.attempt.attempt_id),
            model=llm.model,
            api_key=llm.api_key or "unused",
            temperature=temperature,
            top_p=top_p,
        )
        if self._databases is None or self._judge is None or self._http is None:
            # Opened in the runner process, because a SQLite connection must not be used after a fork.
            self._databases, self._judge = self._task.databases(self._settings), self._task.judge(self._settings)
            self._http = shared_client()
        with self._databases.of(question.database) as database:
            record = await run_rollout(
                question, self._task, endpoint, database, self._judge, self._settings, http_client=self._http
            )
        spans = [agl.emit_object(record.model_dump(mode="json"), propagate=False)]
        if record.reward:
            spans.append(agl.emit_reward(record.reward.total, propagate=False))
        return spans
