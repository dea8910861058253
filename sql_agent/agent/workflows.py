"""The agent's workflows `react` and `check-rewrite`, and a session that calls the model and the database."""

from __future__ import annotations

import re
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from json import JSONDecodeError
from typing import Any

from agents import Agent, ModelSettings, OpenAIChatCompletionsModel, RunConfig, Runner, Tool, set_tracing_disabled
from agents.exceptions import ModelBehaviorError
from openai import AsyncOpenAI, OpenAIError
from openai.types.chat import ChatCompletion
from pydantic import ValidationError

from sql_agent.agent.tools import QueryObserver, QueryTool, function_tool, most_calls
from sql_agent.config.endpoints import ModelEndpoint
from sql_agent.config.settings import Settings
from sql_agent.database import Database
from sql_agent.reward.execution_match import statement_in
from sql_agent.schemas import Lang, Question, Reply, ToolCall
from sql_agent.system.files import prompt_file
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
        observer: QueryObserver | None,
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

        `role` is recorded with each call of the model; it is "" in the workflow `react`. Raises the exceptions of
        openai-agents' Runner, and OpenAIError if the endpoint fails.
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
    """Records each reply in `replies`.

    Overrides a private method, because the public method does not return a reply that openai-agents rejects.
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


WRITE, CHECK, REWRITE, ANSWER = "write", "check", "rewrite", "answer"

_VERDICT = re.compile(r"verdict\W{0,5}(right|wrong)", re.IGNORECASE)

Workflow = Callable[[AgentSession], Awaitable[str]]


def system_prompt(task: Task, database: Database, settings: Settings) -> str:
    write = task.instructions if settings.agent.workflow == "react" else task.describe
    return write(settings.lang, database, settings)


async def react(session: AgentSession) -> str:
    """Let the model call the tool until the model answers, and return the answer."""
    task, question = session.task, session.question
    database = session.database
    return await session.ask(
        [user(await database.in_thread(task.question_text, question, database))],
        system=await database.in_thread(task.instructions, question.lang, database, session.settings),
        tools=[function_tool(session.tool, task.describe_tool(database))],
        max_turns=session.settings.agent.max_turns,
    )


async def check_rewrite(session: AgentSession) -> str:
    """Write and run a statement, check and rewrite the statement until the check approves, and return the answer.

    At most `agent.max_turns` statements are written. A statement with an error or a hint is rewritten without a check,
    because the error or hint says what to change. The last statement, which cannot be rewritten, is not checked. If the
    task has no checks, a statement with rows is final, and a statement without rows is rewritten. The workflow also
    ends when a rewrite repeats the statement, or when the model abstains. A rewrite continues the conversation of the
    role `write`, so that both are one training sequence. The answer is the statement or, if the task does not want SQL,
    the text that the role `answer` writes from the result.
    """
    task, lang = session.task, session.question.lang
    question = await session.database.in_thread(task.question_text, session.question, session.database)
    system = await session.database.in_thread(task.describe, lang, session.database, session.settings)
    messages = [user(prompt(WRITE, lang, question=question, dialect=session.database.dialect.title))]
    role, statements, sql = WRITE, session.settings.agent.max_turns, ""
    for left in range(statements - 1, -1, -1):
        reply = await session.ask(messages, system=system, role=role)
        before, sql = sql, statement_in(reply)
        if (role == REWRITE and sql == before) or (task.answer_is_sql and task.abstains(sql, lang)):
            break
        result = await session.tool(sql)
        if not left:
            break
        answer, feedback = session.tool.calls[-1].answer, ""
        if answer.count and not task.checks_results:
            break
        if task.checks_results and answer.status == "ok" and answer.hint is None:
            checked = prompt(CHECK, lang, question=question, sql=sql, result=result)
            feedback = await _check(session, checked, system)
            if approves(feedback):
                break
        messages += [assistant(reply), user(prompt(REWRITE, lang, result=result, feedback=feedback))]
        role = REWRITE
    if task.answer_is_sql:
        return sql
    return await session.ask(
        [user(prompt(ANSWER, lang, question=question, sql=sql, result=result))], system=system, role=ANSWER
    )


async def _check(session: AgentSession, message: str, system: str) -> str:
    """Return the text of the check; "" if the reply is unusable, which counts as approval."""
    try:
        return await session.ask([user(message)], system=system, role=CHECK)
    except ModelBehaviorError:
        return ""


WORKFLOWS: Mapping[str, Workflow] = {"react": react, "check-rewrite": check_rewrite}


def approves(check: str) -> bool:
    """Return whether the last verdict in the text of a check is RIGHT, or there is no verdict."""
    verdicts = _VERDICT.findall(check)
    return not verdicts or verdicts[-1].lower() == "right"


def prompt(role: str, lang: Lang, **values: str) -> str:
    """Return the prompt of a role, with each {name} replaced by `values[name]`."""
    places = re.compile(r"\{(" + "|".join(values) + r")\}")
    return places.sub(lambda place: values[place[1]], prompt_file(__file__, f"{role}.{lang}.txt")).strip()


def user(text: str) -> InputMessage:
    return {"role": "user", "content": text}


def assistant(text: str) -> InputMessage:
    return {"role": "assistant", "content": text}
