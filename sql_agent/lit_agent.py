"""The agent as agent-lightning runs it: one run per attempt, its record and its reward into the store."""

from __future__ import annotations

from typing import Any, cast

import agentlightning as agl
from openai import DefaultAsyncHttpxClient, OpenAIError

from sql_agent.agent import AgentRun, Endpoint, run_agent, shared_client
from sql_agent.config import Settings
from sql_agent.database import SqliteDatabase
from sql_agent.errors import JudgeError
from sql_agent.records import Question, RolloutRecord, Usage
from sql_agent.reward import Judge, JudgeCase, score
from sql_agent.services import configured_database, configured_judge

RESOURCE = "main_llm"


class SqlLitAgent(agl.LitAgent[dict[str, Any]]):  # type: ignore[misc]
    """Runs one question per rollout. Training samples, validation uses its own temperature.

    Returns the rollout's spans: its `RolloutRecord` as an object and, unless the rollout is to be dropped, its reward.
    A record that was dropped says why, and nothing pretends to be a score of 0.
    """

    def __init__(self, settings: Settings) -> None:
        super().__init__()
        self._settings = settings
        self._database: SqliteDatabase | None = None
        self._judge: Judge | None = None
        self._http: DefaultAsyncHttpxClient | None = None

    async def training_rollout_async(self, task: dict[str, Any], resources: Any, rollout: Any) -> list[Any]:
        agent = self._settings.agent
        return await self._rollout(task, resources, rollout, agent.temperature, agent.top_p)

    async def validation_rollout_async(self, task: dict[str, Any], resources: Any, rollout: Any) -> list[Any]:
        agent = self._settings.agent
        return await self._rollout(task, resources, rollout, agent.val_temperature, agent.val_top_p)

    async def _rollout(
        self, task: dict[str, Any], resources: Any, rollout: Any, temperature: float, top_p: float
    ) -> list[Any]:
        question = Question.model_validate(task)
        llm = cast(agl.ProxyLLM, resources[RESOURCE])
        endpoint = Endpoint(
            base_url=llm.get_base_url(rollout.rollout_id, rollout.attempt.attempt_id),
            model=llm.model,
            api_key=llm.api_key or "unused",
            temperature=temperature,
            top_p=top_p,
        )
        if self._database is None or self._judge is None or self._http is None:
            # Made in the runner process, not before the fork: a SQLite connection must not cross one.
            self._database = configured_database(self._settings)
            self._judge = configured_judge(self._settings)
            self._http = shared_client()
        record = await grade_question(
            question, endpoint, self._database, self._judge, self._settings, http_client=self._http
        )
        spans = [agl.emit_object(record.model_dump(mode="json"), propagate=False)]
        if record.reward:
            spans.append(agl.emit_reward(record.reward.total, propagate=False))
        return spans


async def grade_question(
    question: Question,
    endpoint: Endpoint,
    database: SqliteDatabase,
    judge: Judge,
    settings: Settings,
    *,
    http_client: DefaultAsyncHttpxClient | None = None,
) -> RolloutRecord:
    """Run the agent on `question` and grade it. A failed judge or endpoint gives a record with `dropped` set.

    `http_client` lets many rollouts share their connections.
    """
    run = AgentRun("", "answered", (), 0, 0.0)
    try:
        run = await run_agent(
            question.question,
            lang=question.lang,
            database=database,
            endpoint=endpoint,
            settings=settings.agent,
            http_client=http_client,
        )
        reward, usage = await score(JudgeCase(question=question, answer=run.answer, calls=run.calls), judge)
    except JudgeError as error:
        record = _record(question, run, dropped=f"judge: {error}")
        return record.model_copy(update={"judge_usage": error.usage or Usage()})
    except OpenAIError as error:
        return _record(question, run, dropped=f"infrastructure: {type(error).__name__}: {error}")
    return _record(question, run).model_copy(update={"reward": reward, "judge_usage": usage})


def _record(question: Question, run: AgentRun, *, dropped: str | None = None) -> RolloutRecord:
    return RolloutRecord(
        question=question,
        answer=run.answer,
        outcome=run.outcome,
        calls=run.calls,
        turns=run.turns,
        seconds=run.seconds,
        dropped=dropped,
    )
