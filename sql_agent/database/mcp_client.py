"""Query a database through an MCP server (`sql-agent mcp`), with the same answers as from a local database.

The field `_meta` of MCP messages, which clients do not show to a model, has the data for programs: the full answer, the
changes of tables for a query, and the schema of the database.
"""

from __future__ import annotations

import asyncio
import os
import shlex
import threading
from collections.abc import Coroutine, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeVar
from urllib.parse import quote

from pydantic import TypeAdapter

from sql_agent.database.counterfactual import Change
from sql_agent.database.database import Database
from sql_agent.database.dialect import Dialect
from sql_agent.database.mysql.dialect import MYSQL
from sql_agent.database.named_values import NamedValue
from sql_agent.database.schema import Schema
from sql_agent.database.sqlite.dialect import SQLITE
from sql_agent.errors import DatabaseFileError
from sql_agent.schemas import TOOL_NAME, QueryAnswer, QueryLimits

META = "sql_agent"  # our key in `_meta`
VALUES_URI = "values://named-in/{text}"
_CONNECT_S = 60.0  # time limit; a server first starts its worker processes
_TRANSFER_S = 30.0  # time limit for sending a query and its answer, besides the query's deadline
_DIALECTS: dict[str, Dialect] = {dialect.name: dialect for dialect in (SQLITE, MYSQL)}

_T = TypeVar("_T")


@dataclass(frozen=True)
class ToolServer:
    """The URL of an MCP server, or the command that starts one; `token` is the bearer token."""

    url: str | None = None
    command: str | None = None
    token: str | None = field(default=None, repr=False)

    def __str__(self) -> str:
        return self.url or f"`{self.command}`"


class McpDatabase(Database):
    """The database behind an MCP server.

    Raises DatabaseFileError if the server is unreachable or runs another version of `sql-agent mcp`.
    """

    def __init__(self, server: ToolServer) -> None:
        self._server = server
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="mcp", daemon=True)
        self._thread.start()
        self._lock = asyncio.Lock()
        self._client: Any = None
        try:
            schema, dialect, limits = self._read(self._wait(self._describe(), _CONNECT_S))
        except BaseException:
            self._stop()
            raise
        super().__init__(server, schema, dialect, limits)

    def query(self, sql: str, *, changes: Sequence[Change] = ()) -> QueryAnswer:
        result = self._wait(self._call(sql, changes), self.limits.deadline_s + _TRANSFER_S)
        if result.is_error and META not in (result.meta or {}):  # the server failed, not the statement
            raise self._unusable(" ".join(getattr(content, "text", "") for content in result.content))
        try:
            return QueryAnswer.model_validate(result.meta[META]["answer"])
        except (KeyError, TypeError, ValueError) as error:
            raise self._unusable(f"the answer cannot be read: {error!r}") from error

    def named_values(self, text: str) -> list[NamedValue]:
        found = self._wait(self._values(text), _TRANSFER_S)
        try:
            return TypeAdapter(list[NamedValue]).validate_json(found[0].text)
        except (IndexError, AttributeError, ValueError) as error:
            raise self._unusable(f"the values cannot be read: {error!r}") from error

    def close(self) -> None:
        """Also stop the server if a command started it."""
        super().close()
        self._stop()

    async def _describe(self) -> Any:
        client = await self._connected()
        tool = next((tool for tool in await client.list_tools() if tool.name == TOOL_NAME), None)
        return (tool.meta or {}).get(META) if tool is not None else None

    def _read(self, described: Any) -> tuple[Schema, Dialect, QueryLimits]:
        if described is None:
            raise self._unusable(f"the server has no tool {TOOL_NAME} of sql-agent")
        try:
            tables = tuple((str(table), tuple(map(str, columns))) for table, columns in described["tables"])
            schema = Schema(tables, database=described["database"])
            return schema, _DIALECTS[described["dialect"]], QueryLimits.model_validate(described["limits"])
        except (KeyError, TypeError, ValueError) as error:
            raise self._unusable(f"the server is a sql-agent of another version: {error!r}") from error

    async def _call(self, sql: str, changes: Sequence[Change]) -> Any:
        async def call(client: Any) -> Any:
            meta = {META: {"changes": [change.model_dump() for change in changes]}}
            return await client.call_tool(TOOL_NAME, {"sql": sql}, meta=meta, raise_on_error=False)

        client = await self._connected()
        try:
            return await call(client)
        except Exception:  # the session has ended or the server was restarted
            async with self._lock:
                if self._client is client:
                    self._client = None
                    await client.close()
            return await call(await self._connected())

    async def _values(self, text: str) -> Any:
        client = await self._connected()
        return await client.read_resource(VALUES_URI.replace("{text}", quote(text, safe="")))

    async def _connected(self) -> Any:
        async with self._lock:
            if self._client is None:
                client = _client(self._server)
                await client.__aenter__()
                self._client = client
            return self._client

    def _wait(self, work: Coroutine[Any, Any, _T], seconds: float) -> _T:
        future = asyncio.run_coroutine_threadsafe(work, self._loop)
        try:
            return future.result(seconds)
        except DatabaseFileError:
            raise
        except TimeoutError as error:
            future.cancel()
            raise self._unusable(f"no answer within {seconds:g} seconds") from error
        except Exception as error:
            raise self._unusable(f"{type(error).__name__}: {error}") from error

    def _unusable(self, what: str) -> DatabaseFileError:
        message = f"the MCP server {self._server} cannot be used: {what}"
        return DatabaseFileError(message, hint="start `sql-agent mcp`, and check agent.mcp_url and MCP_TOKEN")

    def _stop(self) -> None:
        if self._thread.is_alive():
            if self._client is not None:
                asyncio.run_coroutine_threadsafe(self._client.close(), self._loop).result(10)
            self._loop.call_soon_threadsafe(self._loop.stop)
            self._thread.join()
        self._loop.close()


def _client(server: ToolServer) -> Any:
    # Imported here, because the import takes a second.
    from fastmcp import Client  # noqa: PLC0415
    from fastmcp.client.transports import StdioTransport, StreamableHttpTransport  # noqa: PLC0415

    if server.url is not None:
        return Client(StreamableHttpTransport(server.url, auth=server.token))
    program, *arguments = shlex.split(server.command or "")
    # By default the transport passes no environment variables, but the server needs DATABASE_URL and other settings.
    return Client(StdioTransport(program, arguments, env=dict(os.environ), keep_alive=False))
