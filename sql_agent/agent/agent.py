"""Run the agent on one question: ask the model, answer its tool calls, and record how the run ended."""

from __future__ import annotations

import os

os.environ.setdefault("OPENAI_AGENTS_DISABLE_TRACING", "1")  # its tracing sends data to OpenAI

import time
from contextlib import AsyncExitStack
from dataclasses import dataclass

import httpx2
from agents import Agent, ModelSettings, OpenAIChatCompletionsModel, RunConfig, Runner, set_tracing_disabled
from agents.exceptions import MaxTurnsExceeded, ModelBehaviorError
from openai import AsyncOpenAI, BadRequestError, DefaultAsyncHttpxClient, OpenAIError
from openai.types.chat import ChatCompletion

from sql_agent.agent.tools import QueryTool, function_tool
from sql_agent.config.settings import AgentSettings
from sql_agent.data.task import Task
from sql_agent.database import Database
from sql_agent.schemas import Lang, Outcome, QueryCall, Reply, ToolCall, Usage

set_tracing_disabled(True)
_IDLE_S = 3.0


@dataclass(frozen=True)
class ModelEndpoint:
    """Names an OpenAI-compatible chat endpoint and how to sample from it."""

    base_url: str
    model: str
    api_key: str
    temperature: float
    top_p: float


@dataclass(frozen=True)
class AgentRun:
    """Holds the answer of one run, how it ended, its queries, the model's replies, and the seconds it took."""

    answer: str
    outcome: Outcome
    calls: tuple[QueryCall, ...]
    replies: tuple[Reply, ...]
    seconds: float

    @property
    def usage(self) -> Usage:
        """What the model read and wrote in all replies."""
        return Usage(
            requests=len(self.replies),
            prompt_tokens=sum(reply.prompt_tokens for reply in self.replies),
            completion_tokens=sum(reply.completion_tokens for reply in self.replies),
        )


async def run_agent(
    question: str,
    *,
    lang: Lang,
    task: Task,
    database: Database,
    endpoint: ModelEndpoint,
    settings: AgentSettings,
    http_client: DefaultAsyncHttpxClient | None = None,
) -> AgentRun:
    """Ask the model behind `endpoint` one question, with the database as its only tool.

    A failure of the model (unknown tool, malformed call, too many turns, a context that overflowed) is an outcome; a
    failure of the infrastructure (connection, time-out, a 5xx) is raised as the OpenAI client's own exception. With
    `http_client` its connections are used and left open; otherwise the run opens and closes its own.
    """
    tool = QueryTool(database, max_calls=settings.max_turns - 1)  # the last turn is for the answer
    replies: list[Reply] = []
    started = time.monotonic()
    async with AsyncExitStack() as stack:
        client = AsyncOpenAI(
            base_url=endpoint.base_url,
            api_key=endpoint.api_key,
            timeout=settings.request_timeout_s,
            max_retries=0,  # because a second request in one attempt would be recorded as another turn
            http_client=http_client or await stack.enter_async_context(DefaultAsyncHttpxClient()),
        )
        agent = Agent(
            name="sql_agent",
            instructions=task.instructions(lang, database.schema.columns),
            tools=[function_tool(tool, task.tool_description)],
            model=_RecordingModel(endpoint.model, client, replies),
            model_settings=ModelSettings(
                temperature=endpoint.temperature, top_p=endpoint.top_p, max_tokens=settings.max_tokens
            ),
        )
        answer, outcome = "", Outcome.ANSWERED
        try:
            result = await Runner.run(
                agent, question, max_turns=settings.max_turns, run_config=RunConfig(tracing_disabled=True)
            )
            answer = str(result.final_output or "").strip()
            if "<tool_call>" in answer:  # the server could not parse it as a call, so it left it as text
                outcome = Outcome.MALFORMED_CALL
        except MaxTurnsExceeded:
            outcome = Outcome.TOO_MANY_TURNS
        except ModelBehaviorError as error:
            outcome = _model_failure(str(error))
        except BadRequestError as error:
            if "context length" not in str(error):
                raise
            outcome = Outcome.CONTEXT_OVERFLOW
    return AgentRun(answer, outcome, tuple(tool.calls), tuple(replies), time.monotonic() - started)


def shared_client() -> DefaultAsyncHttpxClient:
    """Open an HTTP client for many runs at once; it closes idle connections before the LLM proxy does, after 5 s."""
    limits = httpx2.Limits(max_connections=None, max_keepalive_connections=None, keepalive_expiry=_IDLE_S)
    return DefaultAsyncHttpxClient(limits=limits)


class _RecordingModel(OpenAIChatCompletionsModel):
    """Appends each reply to `replies`, also one that openai-agents cannot use and raises an exception about.

    It overrides a private method, because the public one raises before it returns such a reply.
    """

    def __init__(self, model: str, client: AsyncOpenAI, replies: list[Reply]) -> None:
        super().__init__(model=model, openai_client=client)
        self._replies = replies

    async def _fetch_response(self, *args, **kwargs):  # type: ignore[no-untyped-def]
        started = time.monotonic()
        completion = await super()._fetch_response(*args, **kwargs)
        if not isinstance(completion, ChatCompletion):  # the client returns a page, such as a login, as its text
            raise OpenAIError("what answers at the model's address is no OpenAI-compatible server: it sent no JSON")
        self._replies.append(_reply(completion, time.monotonic() - started))
        return completion


def _reply(completion: ChatCompletion, seconds: float) -> Reply:
    """Return what a record keeps of `completion`; a server's error in place of a reply has no choices."""
    tokens = completion.usage
    counts = (tokens.prompt_tokens or 0, tokens.completion_tokens or 0) if tokens else (0, 0)
    if not completion.choices:
        return Reply(prompt_tokens=counts[0], completion_tokens=counts[1], seconds=seconds)
    choice = completion.choices[0]
    message = choice.message
    calls = [call.function for call in message.tool_calls or () if call.type == "function"]
    return Reply(
        text=message.content or "",
        reasoning=getattr(message, "reasoning_content", None) or getattr(message, "reasoning", None) or "",
        tool_calls=tuple(ToolCall(name=call.name, arguments=call.arguments) for call in calls),
        prompt_tokens=counts[0],
        completion_tokens=counts[1],
        finish_reason=choice.finish_reason,
        seconds=seconds,
    )


def _model_failure(message: str) -> Outcome:
    """Return the outcome of a ModelBehaviorError, whose kinds openai-agents distinguishes by the text only."""
    if "not found in agent" in message:
        return Outcome.UNKNOWN_TOOL
    if "no assistant text" in message:
        return Outcome.NO_OUTPUT
    return Outcome.MALFORMED_CALL
