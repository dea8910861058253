"""Call the model and the database during one rollout, and record the replies and queries."""

from __future__ import annotations

import os

os.environ.setdefault("OPENAI_AGENTS_DISABLE_TRACING", "1")  # the tracing of openai-agents sends data to OpenAI

import time
from collections.abc import Sequence
from json import JSONDecodeError
from typing import Any

from agents import Agent, ModelSettings, OpenAIChatCompletionsModel, RunConfig, Runner, Tool, set_tracing_disabled
from openai import AsyncOpenAI, OpenAIError
from openai.types.chat import ChatCompletion
from pydantic import ValidationError

from sql_agent.agent.tools import QueryObserver, QueryTool, most_calls
from sql_agent.config.endpoints import ModelEndpoint
from sql_agent.config.settings import Settings
from sql_agent.database import Database
from sql_agent.schemas import Question, Reply, ToolCall
from sql_agent.tasks.task import Task

set_tracing_disabled(True)
ROLE_HEADER = "x-agent-role"  # HTTP header; the LLM proxy records its value with each model call

InputMessage = dict[str, Any]  # a chat message in the format of openai-agents


class AgentSession:
    """One running rollout: the question, the model's `replies` so far, and the queries so far in `tool.calls`."""

    def __init__(  # noqa: PLR0917  the parts of a rollout, in the order of their use
        self,
        question: Question,
        task: Task,
        database: Database,
        endpoint: ModelEndpoint,
        client: AsyncOpenAI,
        settings: Settings,
        *,
        observer: QueryObserver | None = None,
    ) -> None:
        self.question = question
        self.task = task
        self.database = database
        self.settings = settings
        max_calls = most_calls(settings) if settings.agent.workflow == "react" else None
        self.tool = QueryTool(database, max_calls=max_calls, observer=observer)
        self.replies: list[Reply] = []
        self._endpoint = endpoint
        self._client = client

    async def ask(
        self,
        messages: Sequence[InputMessage],
        *,
        system: str,
        role: str = "",
        tools: Sequence[Tool] = (),
        max_turns: int = 1,
    ) -> str:
        """Send `messages` to the model, execute its calls of `tools`, and return its final text.

        `role` is recorded with each call; it is empty in a workflow with one role. Raises the exceptions of
        openai-agents' Runner, and OpenAIError for a failure of the endpoint.
        """
        endpoint = self._endpoint
        thinking = self.settings.agent.enable_thinking
        agent = Agent(
            name=role or "sql_agent",
            instructions=system,
            tools=list(tools),
            model=_RecordingModel(endpoint.model, self._client, self.replies, role),
            model_settings=ModelSettings(
                temperature=endpoint.temperature,
                top_p=1.0,  # vLLM's default is in generation_config.json
                max_tokens=self.settings.agent.max_tokens,
                extra_headers={ROLE_HEADER: role} if role else None,
                extra_body=None if thinking is None else {"chat_template_kwargs": {"enable_thinking": thinking}},
            ),
        )
        config = RunConfig(tracing_disabled=True)
        result = await Runner.run(agent, list(messages), max_turns=max_turns, run_config=config)  # type: ignore[arg-type]
        return str(result.final_output or "")


class _RecordingModel(OpenAIChatCompletionsModel):
    """Records each reply in `replies`, also a reply that openai-agents rejects.

    Overrides a private method, because the public method does not return a rejected reply.
    """

    def __init__(self, model: str, client: AsyncOpenAI, replies: list[Reply], role: str) -> None:
        super().__init__(model=model, openai_client=client)
        self._replies = replies
        self._role = role

    async def _fetch_response(self, *args, **kwargs):  # type: ignore[no-untyped-def]
        started = time.monotonic()
        try:
            completion = await super()._fetch_response(*args, **kwargs)
        except (JSONDecodeError, UnicodeDecodeError) as error:
            raise OpenAIError(f"the model endpoint returned damaged JSON: {error}") from error
        if not isinstance(completion, ChatCompletion):  # the client returns an HTML page, such as a login, as a string
            raise OpenAIError("the model endpoint URL did not return JSON; is it an OpenAI-compatible server?")
        if not completion.choices:  # some providers report a failure this way, with status 200
            why = getattr(completion, "error", None) or "the endpoint gave no reason"
            raise OpenAIError(f"the model endpoint returned no choices: {why}")
        try:
            self._replies.append(_reply(completion, time.monotonic() - started, self._role))
        except (ValidationError, AttributeError, TypeError) as error:  # the client checks no types
            raise OpenAIError(f"the model endpoint's reply does not fit OpenAI's schema: {error}") from error
        return completion


def _reply(completion: ChatCompletion, seconds: float, role: str) -> Reply:
    tokens = completion.usage
    counts = (tokens.prompt_tokens or 0, tokens.completion_tokens or 0) if tokens else (0, 0)
    details = tokens.completion_tokens_details if tokens else None
    choice = completion.choices[0]
    message = choice.message
    calls = [call.function for call in message.tool_calls or () if call.type == "function"]
    return Reply(
        role=role,
        text=message.content or "",
        reasoning=getattr(message, "reasoning_content", None) or getattr(message, "reasoning", None) or "",
        tool_calls=tuple(ToolCall(name=call.name, arguments=call.arguments) for call in calls),
        prompt_tokens=counts[0],
        completion_tokens=counts[1],
        thought_tokens=(details.reasoning_tokens or 0) if details else 0,
        finish_reason=choice.finish_reason,
        seconds=seconds,
    )
