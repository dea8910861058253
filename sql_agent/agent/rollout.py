"""Run rollouts: the agent's workflow on a question, then the judge on the answer; many questions concurrently."""

from __future__ import annotations

import asyncio
import re
import time
from collections.abc import Awaitable, Callable, Sequence
from contextlib import AsyncExitStack

import httpx2
from agents.exceptions import AgentsException, MaxTurnsExceeded, ModelBehaviorError
from openai import AsyncOpenAI, BadRequestError, DefaultAsyncHttpxClient, OpenAIError

from sql_agent.agent.tools import QueryObserver
from sql_agent.agent.workflows import WORKFLOWS, AgentSession
from sql_agent.config.endpoints import ModelEndpoint
from sql_agent.config.settings import Settings
from sql_agent.database import Database, DatabasePool
from sql_agent.database.answers import DATABASE_CHANGED
from sql_agent.database.provenance import judge_case
from sql_agent.errors import DatabaseFileError, JudgeError, TrainingError
from sql_agent.reward import Judge, score
from sql_agent.reward.execution_match import statement_in
from sql_agent.reward.judges.items import Reader
from sql_agent.schemas import Drop, DropCause, Outcome, QueryCall, Question, RolloutRecord, Usage
from sql_agent.system.servers import LOCAL_NAMES
from sql_agent.tasks.task import Task

Asked = tuple[str, Question]  # a question with the name of its set
OnRecord = Callable[[str, RolloutRecord], None]

_PAUSES_S = (1.0, 2.0, None)  # pause after each failed attempt at a question; None: no further attempt
# Seconds between the starts of two workers. Workers that started together needed the processor at the same moments:
# 500 questions with 32 workers took 12 to 21 % longer.
_STAGGER_S = 0.02
_DEAD_AFTER = 8  # number of consecutive failures after which the model server counts as down
_OVERFLOW = re.compile(r"context[ _](length|size|window)|prompt is too long", re.IGNORECASE)  # of various servers
_CALL_MARKS = ("<tool_call>", "[TOOL_CALLS]", "<|python_tag|>", "```tool_code")  # begin a tool call
# Seconds that an idle connection is kept, less than a server's own limit (LLM proxy 30 s, others often 5 s).
_KEEPALIVE_S = 3.0
_DIRECT = {f"all://{name}": None for name in LOCAL_NAMES}  # requests to this machine bypass http_proxy


async def run_rollout(  # noqa: PLR0917  the parts of a rollout, in the order of their use
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
    """Run the agent on `question` and grade the answer. Without a `judge`, the record's `reward` is None.

    A failure of the model (unknown tool, malformed call, too many turns, context overflow) is an outcome. A failure of
    the judge, the endpoint or the database sets `dropped`. Rollouts can share the connections of one `http_client`;
    `observer` receives each query during the run.
    """
    record, read = _empty(question), None
    try:
        async with AsyncExitStack() as stack:
            client = http_client or await stack.enter_async_context(DefaultAsyncHttpxClient(mounts=_DIRECT))
            openai = AsyncOpenAI(
                base_url=endpoint.base_url,
                api_key=endpoint.api_key,
                timeout=settings.agent.request_timeout_s,
                max_retries=0,  # no retries: a second request would be recorded as another turn
                http_client=client,
            )
            record = await _run_agent(
                AgentSession(question, task, database, endpoint, openai, settings, observer=observer)
            )
        if trouble := _database_trouble(record.calls):
            return _dropped(record, DropCause.DATABASE, trouble)
        if judge is None:
            return record
        reader = Reader(task.words[question.lang])
        case = await database.in_thread(
            judge_case, question, record.answer, record.calls, database, task.schema.names, reader
        )
        read = case.evidence_read
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
    """Return the record of a rollout whose database could not be opened."""
    return _dropped(_empty(question), DropCause.DATABASE, str(error))


def shared_client(
    *, direct: bool = False, on_request: Callable[[httpx2.Request], Awaitable[None]] | None = None
) -> DefaultAsyncHttpxClient:
    """Open an HTTP client for many concurrent rollouts. `on_request` is called with each request before it is sent.

    If `direct`, all requests ignore proxy variables such as http_proxy; else only requests to this machine do.
    """
    hooks = {"request": [on_request]} if on_request else {}
    limits = httpx2.Limits(max_connections=None, max_keepalive_connections=None, keepalive_expiry=_KEEPALIVE_S)
    return DefaultAsyncHttpxClient(limits=limits, mounts=_DIRECT, trust_env=not direct, event_hooks=hooks)


async def _run_agent(session: AgentSession) -> RolloutRecord:
    started = time.monotonic()
    answer, outcome = await _run_workflow(session)
    task, lang = session.task, session.question.lang
    if task.answer_is_sql and task.abstains(statement_in(answer), lang):
        answer = task.words[lang].refusals[0]  # record each refusal in the same words
    replies = tuple(session.replies)
    return RolloutRecord(
        question=session.question,
        answer=answer,
        outcome=outcome,
        calls=tuple(session.tool.calls),
        replies=replies,
        turns=len(replies),
        seconds=time.monotonic() - started,
        usage=Usage(
            requests=len(replies),
            prompt_tokens=sum(reply.prompt_tokens for reply in replies),
            completion_tokens=sum(reply.completion_tokens for reply in replies),
        ),
    )


async def _run_workflow(session: AgentSession) -> tuple[str, Outcome]:
    """Return the answer, or "" if there is none, and the outcome."""
    try:
        answer = (await WORKFLOWS[session.settings.agent.workflow](session)).strip()
    except MaxTurnsExceeded:
        return "", Outcome.TOO_MANY_TURNS
    except ModelBehaviorError as error:  # its kinds differ only in the message
        if "not found in agent" in str(error):
            return "", Outcome.UNKNOWN_TOOL
        return "", Outcome.NO_OUTPUT if "no assistant text" in str(error) else Outcome.MALFORMED_CALL
    except BadRequestError as error:
        if error.code != "context_length_exceeded" and not _OVERFLOW.search(str(error)):
            raise
        return "", Outcome.CONTEXT_OVERFLOW
    if not answer and session.replies and session.replies[-1].reasoning and not session.replies[-1].text:
        return "", Outcome.NO_OUTPUT  # openai-agents accepts a reply with only a thought
    # A server that cannot parse a tool call returns the call as text.
    return answer, Outcome.MALFORMED_CALL if any(mark in answer for mark in _CALL_MARKS) else Outcome.ANSWERED


def _database_trouble(calls: Sequence[QueryCall]) -> str | None:
    """Return the error of a statement that was refused because the database was changed, or None."""
    errors = (call.answer.error for call in calls)
    return next((f"{e.message}; {e.hint}" for e in errors if e is not None and e.kind == DATABASE_CHANGED), None)


def _empty(question: Question) -> RolloutRecord:
    return RolloutRecord(question=question, answer="", outcome=Outcome.ANSWERED)


def _dropped(record: RolloutRecord, cause: DropCause, detail: str) -> RolloutRecord:
    return record.model_copy(update={"dropped": Drop(cause=cause, detail=detail)})


async def ask_all(  # noqa: PLR0917  the parameters of `run_rollout`, in the same order
    questions: Sequence[Asked],
    task: Task,
    endpoint: ModelEndpoint,
    databases: DatabasePool,
    judge: Judge | None,
    settings: Settings,
    *,
    concurrency: int,
    on_record: OnRecord,
) -> None:
    """Ask `questions`, `concurrency` at a time, and pass each finished record to `on_record`.

    A dropped rollout is retried; after three attempts the record has `dropped` set.
    Raises TrainingError when the model server fails on eight questions in a row.
    """
    waiting = iter(questions)
    failed_in_a_row = 0
    gone: TrainingError | None = None
    async with shared_client() as client:

        async def work(number: int) -> None:
            nonlocal failed_in_a_row, gone
            await asyncio.sleep(number * _STAGGER_S)
            for name, question in waiting:
                with databases.of(question.database) as database:
                    for pause in _PAUSES_S:
                        record = await run_rollout(
                            question, task, endpoint, database, judge, settings, http_client=client
                        )
                        if record.dropped is None or pause is None or gone:
                            break
                        await asyncio.sleep(pause)
                on_record(name, record)
                drop = record.dropped
                failed_in_a_row = failed_in_a_row + 1 if drop and drop.cause is DropCause.MODEL_SERVER else 0
                if drop and failed_in_a_row == _DEAD_AFTER:
                    gone = TrainingError(
                        f"the model {endpoint.model} at {endpoint.base_url} failed on {_DEAD_AFTER} questions in a "
                        f"row: {drop.detail}",
                        hint="correct the URL, the model's name or the key, then ask again, or evaluate with --resume",
                    )
                if gone:
                    return

        # After a failure, the other workers finish their current question, so that its record is kept.
        await asyncio.gather(*(work(number) for number in range(min(concurrency, len(questions)))))
    if gone:
        raise gone
