"""An MCP server: the agent's tool, a list of all columns, and a search for the database's values in a text."""

from __future__ import annotations

import json
from importlib.metadata import version
from typing import Any

from fastmcp import FastMCP
from fastmcp.resources import TextResource
from fastmcp.server.dependencies import get_context
from fastmcp.tools import Tool, ToolResult
from mcp.types import ToolAnnotations
from pydantic import AnyUrl, PrivateAttr, TypeAdapter, ValidationError

from sql_agent.agent.tools import answer_json, malformed, parameters, sql_of
from sql_agent.database import Database
from sql_agent.database.counterfactual import Change
from sql_agent.database.mcp_client import META, VALUES_URI
from sql_agent.schemas import TOOL_NAME, QueryAnswer
from sql_agent.system.messages import first_problem
from sql_agent.tasks.task import Task

SCHEMA_URI = "schema://tables"
_MAX_LISTING_CHARS = 4_000  # maximum for the tables and columns in the tool's description
_READ_ONLY = ToolAnnotations(readOnlyHint=True, destructiveHint=False, idempotentHint=True, openWorldHint=False)


def make_server(task: Task, database: Database) -> FastMCP:
    """Return an MCP server with the tool for `database`. The server checks no token; over HTTP, use `AccessCheck`."""
    tool = _query_tool(task, database)
    server = FastMCP("sql-agent", instructions=task.disclaimer, version=version("sql-agent-trainer"), tools=[tool])
    columns = json.dumps(dict(database.schema.tables), ensure_ascii=False)
    description = "all tables that may be read, with their columns"
    server.add_resource(
        TextResource(
            uri=AnyUrl(SCHEMA_URI), name="tables", description=description, mime_type="application/json", text=columns
        )
    )

    @server.resource(
        VALUES_URI, mime_type="application/json", description="the values of the database that a text names"
    )
    async def values(text: str) -> str:
        found = await database.in_thread(database.named_values, text)
        return json.dumps([value.model_dump() for value in found], ensure_ascii=False)

    return server


def _query_tool(task: Task, database: Database) -> Tool:
    described = {
        "tables": database.schema.tables,
        "database": database.schema.database,
        "dialect": database.dialect.name,
        "limits": database.limits.model_dump(),
    }
    listing = "; ".join(f"{table} has {', '.join(columns)}" for table, columns in database.schema.tables)
    if len(listing) > _MAX_LISTING_CHARS:
        listing = f"{database.schema.listing}; the resource {SCHEMA_URI} has all columns"
    tool = _QueryTool(
        name=TOOL_NAME,
        description=f"{task.describe_tool(database)} {listing}. {task.disclaimer}",
        parameters=parameters(database.dialect.title),
        annotations=_READ_ONLY,
        meta={META: described},
    )
    tool.serve(database)
    return tool


class _QueryTool(Tool):
    """The MCP tool. A result contains JSON for the model and, in `_meta`, the complete `QueryAnswer` for programs."""

    _database: Database = PrivateAttr()

    def serve(self, database: Database) -> None:
        self._database = database

    async def run(self, arguments: dict[str, Any]) -> ToolResult:
        """Run the statement in `arguments`, on the tables with the changes that the request's `_meta` lists."""
        try:
            sql = sql_of(arguments)
            changes = _changes()
        except ValueError as error:
            answer = malformed(str(error))
        else:
            answer = await self._database.in_thread(self._database.query, sql, changes=changes)
        return _result(answer)


def _result(answer: QueryAnswer) -> ToolResult:
    shown = answer_json(answer).encode("utf-8", "replace").decode("utf-8")
    meta = {META: {"answer": answer.model_dump(mode="json")}}
    return ToolResult(content=shown, meta=meta, is_error=answer.status == "error")


def _changes() -> list[Change]:
    """Return the table changes listed in the request's `_meta`. Raises ValueError for a malformed list."""
    request = get_context().request_context
    given = getattr(request.meta, META, None) if request is not None and request.meta is not None else None
    changes = given.get("changes", []) if isinstance(given, dict) else []
    try:
        return TypeAdapter(list[Change]).validate_python(changes)
    except ValidationError as error:
        raise ValueError(f"_meta.{META}.changes is no list of changes: {first_problem(error)}") from None
