"""Run the agent on one question and grade what it did."""

from __future__ import annotations

from openai import DefaultAsyncHttpxClient, OpenAIError

from sql_agent.agent.agent import AgentRun, ModelEndpoint, run_agent
from sql_agent.config.settings import Settings
from sql_agent.data.task import Task
from sql_agent.database import Database
from sql_agent.database.provenance import evidence_read
from sql_agent.errors import JudgeError
from sql_agent.reward import Judge, JudgeCase, score
from sql_agent.schemas import Drop, DropCause, Outcome, Question, RolloutRecord, Usage


async def run_rollout(  # noqa: PLR0917  the parts of a rollout, in the order in which they act
    question: Question,
    task: Task,
    endpoint: ModelEndpoint,
    database: Database,
    judge: Judge | None,
    settings: Settings,
    *,
    http_client: DefaultAsyncHttpxClient | None = None,
) -> RolloutRecord:
    """Run the agent on `question` of `task` and grade its answer.

    A judge or an endpoint that fails gives a record with `dropped` set. Without a `judge`, as for a question that has
    no reference answer, nothing is graded and `reward` is None.
    `http_client` lets many rollouts share their connections.
    """
    run, read = AgentRun("", Outcome.ANSWERED, (), (), 0.0), None
    try:
        run = await run_agent(
            question,
            task=task,
            database=database,
            endpoint=endpoint,
            settings=settings,
            http_client=http_client,
        )
        if judge is None:
            return _record(question, run)
        if question.evidence:
            read = await database.in_thread(evidence_read, database, run.calls, question.evidence)
        case = JudgeCase(question=question, answer=run.answer, calls=run.calls, evidence_read=read)
        reward, usage = await score(case, judge, task.rule)
    except JudgeError as error:
        record = _record(question, run, dropped=Drop(cause=DropCause.JUDGE, detail=error.message))
        return record.model_copy(update={"judge_usage": error.usage or Usage()})
    except OpenAIError as error:
        detail = f"{type(error).__name__}: {error}"
        return _record(question, run, dropped=Drop(cause=DropCause.MODEL_SERVER, detail=detail))
    return _record(question, run).model_copy(update={"reward": reward, "judge_usage": usage, "evidence_read": read})


def _record(question: Question, run: AgentRun, *, dropped: Drop | None = None) -> RolloutRecord:
    return RolloutRecord(
        question=question,
        answer=run.answer,
        outcome=run.outcome,
        calls=run.calls,
        replies=run.replies,
        turns=len(run.replies),
        seconds=run.seconds,
        usage=run.usage,
        dropped=dropped,
    )
