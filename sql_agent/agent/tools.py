"""The agent's tool `query_database_by_sql`, which runs a SQL statement and returns JSON."""

from __future__ import annotations

import json
import time
from collections.abc import Sequence
from typing import Any, Protocol

import agents

from sql_agent.config.settings import Settings
from sql_agent.database import Database
from sql_agent.database.answers import refusal
from sql_agent.schemas import TOOL_NAME, QueryAnswer, QueryCall
from sql_agent.tasks.task import Task

REPEATED = "you ran this statement before: change it, or answer"
LAST = "no query is left: answer now"
_MAX_KEPT_CHARS = 10_000  # maximum for a recorded statement; the guard refuses statements longer than 8,000


class QueryObserver(Protocol):
    """Is notified of each query of a running rollout. Queries are numbered from 1 in the order of sending."""

    def sent(self, number: int, sql: str) -> None: ...

    def answered(self, number: int, call: QueryCall) -> None: ...


class QueryTool:
    """Runs statements on a database for one rollout; `calls` lists the finished calls in order.

    Small models repeat a statement that finds no rows until no turn is left for the answer. Therefore a hint tells the
    model that it repeats a statement, or that the statement was the last of `max_calls`.
    """

    def __init__(
        self, database: Database, *, max_calls: int | None = None, observer: QueryObserver | None = None
    ) -> None:
        self._database = database
        self._max_calls = max_calls
        self._observer = observer
        self._sent = 0
        self.calls: list[QueryCall] = []

    @property
    def dialect(self) -> str:
        return self._database.dialect.title

    async def __call__(self, sql: str) -> str:
        """Run one statement and return its rows or error as JSON for the model."""
        number = self._announce(sql)
        start = time.perf_counter()
        answer = await self._database.in_thread(self._database.query, sql)
        return self._record(number, sql, answer, time.perf_counter() - start)

    def refuse(self, arguments: str, message: str) -> str:
        """Record a malformed call, and return the reason as JSON for the model."""
        return self._record(self._announce(arguments), arguments, malformed(message), 0.0)

    def _announce(self, sql: str) -> int:
        """Return the number of a statement that is about to run, and notify the observer."""
        self._sent += 1
        if self._observer is not None:
            self._observer.sent(self._sent, _kept(sql))
        return self._sent

    def _record(self, number: int, sql: str, answer: QueryAnswer, seconds: float) -> str:
        kept = _kept(sql)
        answer = in_rollout(answer, kept, [call.sql for call in self.calls], self._max_calls)
        self.calls.append(QueryCall(sql=kept, answer=answer, seconds=seconds))
        if self._observer is not None:
            self._observer.answered(number, self.calls[-1])
        return answer_json(answer)


def malformed(message: str) -> QueryAnswer:
    return refusal("malformed_call", message, 'call the tool with {"sql": "SELECT ..."} and nothing else')


def most_calls(settings: Settings) -> int:
    """Return the maximum number of statements in the workflow "react": one in each turn but the last."""
    return settings.agent.max_turns - 1


def in_rollout(answer: QueryAnswer, sql: str, before: Sequence[str], max_calls: int | None) -> QueryAnswer:
    """Return `answer`, with a further hint if no query is left or `sql` is one of the earlier statements `before`.

    Each repetition shows another line of the hint first, as the model did not follow the one before.
    """
    if max_calls is not None and len(before) + 1 >= max_calls:
        return _with_hint(answer, LAST)
    if not (times := before.count(sql)):
        return answer
    lines = ((answer.error.hint if answer.error is not None else answer.hint) or "").splitlines()
    first = times % max(1, len(lines))
    return _with_hint(answer, "\n".join([*lines[first:], *lines[:first], REPEATED]))


def _kept(sql: str) -> str:
    """Return `sql`, shortened and without lone surrogates, which UTF-8 cannot encode."""
    return sql[:_MAX_KEPT_CHARS].encode("utf-8", "replace").decode("utf-8")


def _with_hint(answer: QueryAnswer, hint: str) -> QueryAnswer:
    if answer.error is not None:
        return answer.model_copy(update={"error": answer.error.model_copy(update={"hint": hint})})
    return answer.model_copy(update={"hint": hint})


def answer_json(answer: QueryAnswer) -> str:
    shown: dict[str, Any] = {"status": answer.status}
    if answer.error is not None:
        shown["error"] = answer.error.model_dump()
    else:
        shown |= {
            "columns": answer.columns,
            "records": answer.records,
            "count": answer.count,
            "truncated": answer.truncated,
        }
        if answer.hint is not None:
            shown["hint"] = answer.hint
    return json.dumps(shown, ensure_ascii=False, separators=(",", ":"), allow_nan=False)


def parameters(dialect: str) -> dict[str, Any]:
    return {
        "type": "object",
        "properties": {"sql": {"type": "string", "description": f"One SELECT statement in {dialect}'s dialect."}},
        "required": ["sql"],
        "additionalProperties": False,
    }


def function_tool(tool: QueryTool, description: str) -> agents.FunctionTool:
    """Return `tool` as a tool of openai-agents.

    For malformed arguments, the library's own wrapper replies only "An error occurred", and no call is recorded.
    """

    async def invoke(_context: object, arguments: str) -> str:
        try:
            sql = sql_of(_parsed(arguments))
        except ValueError as error:
            return tool.refuse(arguments, str(error))
        return await tool(sql)

    return agents.FunctionTool(
        name=TOOL_NAME, description=description, params_json_schema=parameters(tool.dialect), on_invoke_tool=invoke
    )


def tool_schema(task: Task, database: Database) -> dict[str, Any]:
    """Return the tool's JSON schema in OpenAI's form, as in the agent's requests."""
    tool = function_tool(QueryTool(database), task.describe_tool(database))
    return {
        "type": "function",
        "function": {
            "name": tool.name,
            "description": tool.description,
            "parameters": tool.params_json_schema,
            "strict": tool.strict_json_schema,
        },
    }


def _parsed(arguments: str) -> object:
    try:
        return json.loads(arguments)
    except json.JSONDecodeError as error:
        raise ValueError(f"the arguments are not JSON: {error.msg} at character {error.pos + 1}") from error
    except RecursionError as error:
        raise ValueError("the arguments are not JSON that can be read: too deeply nested") from error


def sql_of(parsed: object) -> str:
    """Return the statement in a call's arguments. Raises ValueError with a message for the model."""
    sql = parsed.get("sql") if isinstance(parsed, dict) else None
    if not isinstance(sql, str):
        raise ValueError('the arguments are not an object with a text under "sql"')  # noqa: TRY004
    if isinstance(parsed, dict) and (extra := sorted(parsed.keys() - {"sql"})):
        raise ValueError(f"unknown arguments: {', '.join(extra)}")
    return sql
