"""Run the agent on one question and grade its answer."""

from __future__ import annotations

from collections.abc import Sequence

from agents.exceptions import AgentsException
from openai import DefaultAsyncHttpxClient, OpenAIError

from sql_agent.agent.agent import run_agent
from sql_agent.agent.tools import QueryObserver
from sql_agent.config.endpoints import ModelEndpoint
from sql_agent.config.settings import Settings
from sql_agent.database import Database
from sql_agent.database.answers import DATABASE_CHANGED
from sql_agent.database.provenance import evidence_read
from sql_agent.errors import DatabaseFileError, JudgeError
from sql_agent.reward import Judge, JudgeCase, score
from sql_agent.schemas import Drop, DropCause, Outcome, QueryCall, Question, RolloutRecord, Usage
from sql_agent.tasks.task import Task


async def run_rollout(  # noqa: PLR0917  the parts of a rollout, in the order in which they act
    question: Question,
    task: Task,
    endpoint: ModelEndpoint,
    database: Database,
    judge: Judge | None,
    settings: Settings,
    *,
    http_client: DefaultAsyncHttpxClient | None = None,
    observer: QueryObserver | None = None,
) -> RolloutRecord:
    """Run the agent on `question` of `task` and grade its answer.

    When the judge, the endpoint or the database fails, the record has `dropped` set. Without a `judge`, as for a
    question without a reference answer, nothing is graded and `reward` is None. `http_client` lets many rollouts share
    their connections; `observer` gets each query while the agent runs.
    """
    record, read = _empty(question), None
    try:
        record = await run_agent(
            question,
            task=task,
            database=database,
            endpoint=endpoint,
            settings=settings,
            http_client=http_client,
            observer=observer,
        )
        if trouble := _database_trouble(record.calls):
            return _dropped(record, DropCause.DATABASE, trouble)
        if judge is None:
            return record
        if question.evidence:
            read = await database.in_thread(evidence_read, database, record.calls, question.evidence)
        case = JudgeCase(question=question, answer=record.answer, calls=record.calls, evidence_read=read)
        reward, usage = await score(case, judge, task.rule)
    except JudgeError as error:
        dropped = _dropped(record, DropCause.JUDGE, error.message)
        return dropped.model_copy(update={"judge_usage": error.usage or Usage()})
    except OpenAIError as error:
        return _dropped(record, DropCause.MODEL_SERVER, f"{type(error).__name__}: {error}")
    except (AgentsException, DatabaseFileError) as error:
        cause = error if isinstance(error, DatabaseFileError) else error.__cause__  # openai-agents wraps a tool's error
        if not isinstance(cause, DatabaseFileError):
            raise
        return _dropped(record, DropCause.DATABASE, str(cause))
    return record.model_copy(update={"reward": reward, "judge_usage": usage, "evidence_read": read})


def unopened(question: Question, error: DatabaseFileError) -> RolloutRecord:
    """Return the record of a rollout that was dropped because its database could not be opened."""
    return _dropped(_empty(question), DropCause.DATABASE, str(error))


def _database_trouble(calls: Sequence[QueryCall]) -> str | None:
    """Return the error of a statement that ran after the database file had changed; it is not the model's failure."""
    errors = (call.answer.error for call in calls)
    return next((f"{e.message}; {e.hint}" for e in errors if e is not None and e.kind == DATABASE_CHANGED), None)


def _empty(question: Question) -> RolloutRecord:
    return RolloutRecord(question=question, answer="", outcome=Outcome.ANSWERED)


def _dropped(record: RolloutRecord, cause: DropCause, detail: str) -> RolloutRecord:
    return record.model_copy(update={"dropped": Drop(cause=cause, detail=detail)})
