"""Run the agent's workflow on one question, and record how the attempt ended."""

from __future__ import annotations

import re
import time
from collections.abc import Awaitable, Callable
from contextlib import AsyncExitStack

import httpx2
from agents.exceptions import MaxTurnsExceeded, ModelBehaviorError
from openai import AsyncOpenAI, BadRequestError, DefaultAsyncHttpxClient

from sql_agent.agent.session import AgentSession
from sql_agent.agent.tools import QueryObserver
from sql_agent.agent.workflows import WORKFLOWS
from sql_agent.config.endpoints import ModelEndpoint
from sql_agent.config.settings import Settings
from sql_agent.database import Database
from sql_agent.schemas import Outcome, Question, RolloutRecord, Usage
from sql_agent.system.sockets import LOCAL_NAMES
from sql_agent.tasks.task import Task

_OVERFLOW = re.compile(r"context[ _](length|size|window)|prompt is too long", re.IGNORECASE)  # differs by server
_IDLE_S = 3.0  # less than a server keeps an idle connection: the LLM proxy 30 s, others often 5
_DIRECT = {f"all://{name}": None for name in LOCAL_NAMES}  # past http_proxy


async def run_agent(
    question: Question,
    *,
    task: Task,
    database: Database,
    endpoint: ModelEndpoint,
    settings: Settings,
    http_client: DefaultAsyncHttpxClient | None = None,
    observer: QueryObserver | None = None,
) -> RolloutRecord:
    """Ask the model behind `endpoint` one question by the workflow of `settings`, and return the ungraded record.

    A failure of the model (unknown tool, malformed call, too many turns, a context that overflowed) is an outcome; a
    failure of the infrastructure (connection, time-out, a 5xx) is raised as the OpenAI client's exception. A given
    `http_client` stays open; otherwise the run opens and closes one. `observer` gets each query during the run.
    """
    started = time.monotonic()
    async with AsyncExitStack() as stack:
        client = AsyncOpenAI(
            base_url=endpoint.base_url,
            api_key=endpoint.api_key,
            timeout=settings.agent.request_timeout_s,
            max_retries=0,  # because a second request in one attempt would be recorded as another turn
            http_client=http_client or await stack.enter_async_context(DefaultAsyncHttpxClient(mounts=_DIRECT)),
        )
        session = AgentSession(question, task, database, endpoint, client, settings, observer=observer)
        answer, outcome = await _run_workflow(session)
    replies = tuple(session.replies)
    return RolloutRecord(
        question=question,
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


def shared_client(
    *, direct: bool = False, on_response: Callable[[httpx2.Response], Awaitable[None]] | None = None
) -> DefaultAsyncHttpxClient:
    """Open an HTTP client for many runs at once; `on_response` gets each response before it is read.

    Requests to this machine ignore http_proxy and its like; with `direct` all requests do.
    """
    hooks = {"response": [on_response]} if on_response else {}
    limits = httpx2.Limits(max_connections=None, max_keepalive_connections=None, keepalive_expiry=_IDLE_S)
    return DefaultAsyncHttpxClient(limits=limits, mounts=_DIRECT, trust_env=not direct, event_hooks=hooks)


async def _run_workflow(session: AgentSession) -> tuple[str, Outcome]:
    """Return the answer, "" without one, and the outcome of the workflow."""
    try:
        answer = (await WORKFLOWS[session.settings.agent.workflow](session)).strip()
    except MaxTurnsExceeded:
        return "", Outcome.TOO_MANY_TURNS
    except ModelBehaviorError as error:
        return "", _model_failure(str(error))
    except BadRequestError as error:
        if error.code != "context_length_exceeded" and not _OVERFLOW.search(str(error)):
            raise
        return "", Outcome.CONTEXT_OVERFLOW
    # A server leaves a call that it cannot parse as text.
    return answer, Outcome.MALFORMED_CALL if "<tool_call>" in answer else Outcome.ANSWERED


def _model_failure(message: str) -> Outcome:
    """Return the outcome of a ModelBehaviorError; openai-agents distinguishes its kinds by the message only."""
    if "not found in agent" in message:
        return Outcome.UNKNOWN_TOOL
    if "no assistant text" in message:
        return Outcome.NO_OUTPUT
    return Outcome.MALFORMED_CALL
