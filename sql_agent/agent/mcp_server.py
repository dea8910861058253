"""Serve the agent's tool to any MCP client, with the guard, caps and hints that the agent itself has."""

from __future__ import annotations

from typing import Any

from fastmcp import FastMCP
from fastmcp.server.dependencies import get_context
from fastmcp.tools import Tool, ToolResult
from pydantic import PrivateAttr

from sql_agent.agent.tools import answer_json, parameters, sql_of
from sql_agent.database import Database
from sql_agent.database.answers import refusal
from sql_agent.database.mcp_client import META, TOOL_NAME
from sql_agent.database.provenance import CellRef
from sql_agent.schemas import QueryAnswer
from sql_agent.tasks.task import Task


def make_server(task: Task, database: Database) -> FastMCP:
    """Return the server of the tool that queries `database`. Over HTTP it needs an `AccessCheck` before it."""
    return FastMCP("sql-agent", instructions=task.disclaimer, tools=[_query_tool(task, database)])


def _query_tool(task: Task, database: Database) -> Tool:
    described = {
        "tables": database.schema.tables,
        "database": database.schema.database,
        "dialect": database.dialect.name,
        "limits": database.limits.model_dump(),
    }
    tool = _QueryTool(
        name=TOOL_NAME,
        description=f"{task.describe_tool(database)} {database.schema.listing}. {task.disclaimer}",
        parameters=parameters(database.dialect.title),
        meta={META: described},
    )
    tool.serve(database)
    return tool


class _QueryTool(Tool):
    """Answers a call with the JSON that a model reads; `_meta` has the whole answer for programs."""

    _database: Database = PrivateAttr()

    def serve(self, database: Database) -> None:
        """Take the database to query."""
        self._database = database

    async def run(self, arguments: dict[str, Any]) -> ToolResult:
        """Run the statement of `arguments`, with the cells empty that the request's `_meta` names."""
        try:
            sql = sql_of(arguments)
            emptied = _emptied()
        except ValueError as error:
            answer = refusal("malformed_call", str(error), 'call it with {"sql": "SELECT ..."}: one text, nothing else')
        else:
            answer = await self._database.in_thread(self._database.query, sql, emptied=emptied)
        return _result(answer)


def _result(answer: QueryAnswer) -> ToolResult:
    shown = answer_json(answer).encode("utf-8", "replace").decode("utf-8")
    return ToolResult(content=shown, meta={META: {"answer": answer.model_dump(mode="json")}})


def _emptied() -> list[CellRef]:
    """Return the cells that the request wants empty. Raises ValueError for what names none."""
    request = get_context().request_context
    given = getattr(request.meta, META, None) if request is not None and request.meta is not None else None
    cells = given.get("emptied", []) if isinstance(given, dict) else []
    found = []
    for cell in cells if isinstance(cells, list) else [cells]:
        match cell:
            case [str(table), int(row_id), str(column)]:
                found.append(CellRef(table, row_id, column))
            case _:
                raise ValueError(f"_meta.{META}.emptied holds what is no [table, id, column]: {cell!r:.80}")
    return found
