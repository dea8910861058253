"""The tool behind an MCP server: any client can call it, and the agent earns with it what it earns in one process."""

from __future__ import annotations

import asyncio
import json
import os
import re
import shlex
import signal
import subprocess
import sys
import threading
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager
from importlib.metadata import version
from pathlib import Path
from typing import Any

import httpx
import pytest
from fastmcp import Client, FastMCP
from fastmcp.exceptions import ToolError
from mcp import ClientSession, StdioServerParameters, stdio_client
from mcp.client.streamable_http import streamable_http_client
from mcp.types import CallToolResult, TextContent, TextResourceContents

from sql_agent.agent.tools import QueryTool
from sql_agent.cli.mcp import main
from sql_agent.config.settings import load_settings
from sql_agent.database import Database, mcp_client, open_database
from sql_agent.database.mcp_client import META, McpDatabase, ToolServer
from sql_agent.database.provenance import evidence_read
from sql_agent.errors import ConfigError, DatabaseFileError
from sql_agent.schemas import TOOL_NAME, Evidence, QueryCall
from sql_agent.tasks.medical.medical_task import TASK
from sql_agent.tasks.medical.tables import SCHEMA
from tests.support.process_tree import descendants, levels
from tests.support.processes import free_port
from tests.support.small_database import make_database

TOKEN = "the-token"
FOUND = "SELECT med_name FROM drugs_info WHERE id = 3"
MISSED = "SELECT form FROM drugs_info WHERE med_name = 'Drg 123'"
SLOW = "SELECT count(*) FROM disease a, disease b, disease c, disease d"
LIMITS = ["database.deadline_s=1", "database.max_rows=5"]


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_database(tmp_path_factory.mktemp("mcp") / "medical.db")


@pytest.fixture(scope="module")
def command(path: Path) -> list[str]:
    return [sys.executable, "-m", "sql_agent", "mcp", f"database.path={path}", "data.natural_questions=0", *LIMITS]


@pytest.fixture(scope="module")
def url(command: list[str]) -> Iterator[str]:
    """A server over HTTP."""
    port = free_port()
    environment = {**os.environ, "MCP_TOKEN": TOKEN}
    with subprocess.Popen(
        [*command, "--http", str(port)], env=environment, stderr=subprocess.PIPE, text=True
    ) as server:
        assert server.stderr is not None
        line = server.stderr.readline()
        assert f"http://127.0.0.1:{port}/mcp" in line
        assert TOKEN not in line
        address = f"http://127.0.0.1:{port}/mcp"
        httpx.get(address, timeout=60)  # clients may connect as soon as the line is printed
        yield address
        server.send_signal(signal.SIGINT)
        assert server.wait(20) in {0, 130}


@asynccontextmanager
async def over_stdio(command: list[str]) -> AsyncIterator[ClientSession]:
    parameters = StdioServerParameters(command=command[0], args=command[1:], env=dict(os.environ))
    async with stdio_client(parameters) as (reading, writing), ClientSession(reading, writing) as session:
        started = await session.initialize()
        assert started.serverInfo.version == version("sql-agent-trainer")
        yield session


@asynccontextmanager
async def over_http(url: str, token: str) -> AsyncIterator[ClientSession]:
    headers = {"Authorization": f"Bearer {token}"}
    async with (
        httpx.AsyncClient(headers=headers) as client,
        streamable_http_client(url, http_client=client) as (reading, writing, _),
        ClientSession(reading, writing) as session,
    ):
        await session.initialize()
        yield session


def shown(result: CallToolResult) -> Any:
    """What a model reads of an answer."""
    (content,) = result.content
    assert isinstance(content, TextContent)
    return json.loads(content.text)


async def check(session: ClientSession, path: Path) -> None:
    (tool,) = (await session.list_tools()).tools
    assert tool.name == TOOL_NAME
    assert "SQLite SELECT" in str(tool.description)
    assert "not medical advice" in str(tool.description)
    assert tool.inputSchema["required"] == ["sql"]
    assert tool.annotations is not None and tool.annotations.readOnlyHint
    (resource,) = (await session.list_resources()).resources
    (content,) = (await session.read_resource(resource.uri)).contents
    assert isinstance(content, TextResourceContents)
    columns = json.loads(content.text)
    assert columns.keys() == {"drugs_info", "disease"}
    assert all(name in str(tool.description) for names in columns.values() for name in names)
    with open_database(path, SCHEMA, load_settings(LIMITS).database.limits()) as database:
        for sql in (FOUND, MISSED, "SELECT id FROM disease", "DELETE FROM disease", "SELECT * FROM secrets"):
            here = json.loads(await QueryTool(database)(sql))
            result = await session.call_tool(TOOL_NAME, {"sql": sql})
            assert shown(result) == here
            assert result.structuredContent is None
            assert result.isError == (here["status"] == "error")
    assert shown(await session.call_tool(TOOL_NAME, {"sql": SLOW}))["error"]["kind"] == "timeout"
    for arguments in ({}, {"sql": 3}, {"sql": FOUND, "limit": 3}):
        assert shown(await session.call_tool(TOOL_NAME, arguments))["error"]["kind"] == "malformed_call"
    for changes in (5, None, {"a": 1}, [3]):
        result = await session.call_tool(TOOL_NAME, {"sql": FOUND}, meta={META: {"changes": changes}})
        assert shown(result)["error"]["kind"] == "malformed_call", changes


@pytest.mark.slow
async def test_the_official_client_gets_the_answers_caps_and_hints_of_the_tool_over_stdio(
    command: list[str], path: Path
) -> None:
    async with over_stdio(command) as session:
        await check(session, path)


@pytest.mark.slow
async def test_the_official_client_gets_them_over_http_with_the_token(url: str, path: Path) -> None:
    async with over_http(url, TOKEN) as session:
        await check(session, path)


@pytest.mark.parametrize("headers", [{}, {"Authorization": "Bearer wrong"}, {"Authorization": f"Basic {TOKEN}"}])
def test_nobody_gets_in_over_http_without_the_token(url: str, headers: dict[str, str]) -> None:
    request = {"jsonrpc": "2.0", "id": 1, "method": "tools/list"}
    accepted = {"Accept": "application/json, text/event-stream"}
    assert httpx.post(url, json=request, headers={**accepted, **headers}).status_code == 401


def test_an_empty_token_is_none_and_one_is_made(
    path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    async def served(*_: object, **__: object) -> None:
        pass

    monkeypatch.setenv("MCP_TOKEN", "")
    monkeypatch.setattr(FastMCP, "run_http_async", served)
    assert main([f"database.path={path}", "--http", str(free_port())]) == 0
    assert re.search(r"MCP_TOKEN=\S{16,}", capsys.readouterr().err)


@pytest.fixture(scope="module")
def remote(url: str) -> Iterator[Database]:
    with McpDatabase(ToolServer(url, token=TOKEN)) as database:
        yield database


@pytest.mark.slow
def test_the_agent_has_the_same_database_behind_a_server(remote: Database, path: Path) -> None:
    with open_database(path, SCHEMA, load_settings(LIMITS).database.limits()) as local:
        for sql in (FOUND, MISSED, SLOW, "SELECT * FROM disease", "SELECT 1", "SELECT * FROM secrets", "x" * 9000):
            assert remote.query(sql) == local.query(sql)
        assert (remote.schema.tables, remote.limits) == (local.schema.tables, local.limits)
        settings = load_settings([])
        assert TASK.instructions("en", remote, settings) == TASK.instructions("en", local, settings)
        text = "Which form has Drug 4? / 100 %"
        assert remote.named_values(text) == local.named_values(text) != []


def test_what_a_statement_read_is_found_out_at_the_server(remote: Database) -> None:
    evidence = (Evidence(table="disease", row_id=5, field="treatment", quote="Drug 5"),)
    for row, read in ((5, evidence), (6, ())):
        sql = f"SELECT treatment FROM disease WHERE id = {row}"
        call = QueryCall(sql=sql, answer=remote.query(sql), seconds=0)
        assert evidence_read(remote, [call], evidence) == read


async def test_many_rollouts_share_a_connection(remote: Database) -> None:
    statements = [f"SELECT med_name FROM drugs_info WHERE id = {number}" for number in range(1, 41)]
    slow = asyncio.create_task(remote.in_thread(remote.query, SLOW))
    answers = await asyncio.gather(*(remote.in_thread(remote.query, sql) for sql in statements))
    assert [answer.records for answer in answers] == [((f"Drug {number}",),) for number in range(1, 41)]
    assert (await slow).status == "error"


@pytest.mark.parametrize("token", [None, "wrong"])
def test_a_server_that_refuses_is_no_fault_of_a_statement(url: str, token: str | None) -> None:
    with pytest.raises(DatabaseFileError, match="cannot be used"):
        McpDatabase(ToolServer(url, token=token))


def described(**changed: object) -> dict[str, object]:
    limits = load_settings(LIMITS).database.limits().model_dump()
    return {"tables": [["disease", ["id"]]], "database": "main", "dialect": "sqlite", "limits": limits, **changed}


@pytest.fixture
def served(monkeypatch: pytest.MonkeyPatch) -> Callable[[object], McpDatabase]:
    """Open the database behind a server in this process, whose tool has this description and fails."""

    def fails(sql: str) -> str:
        raise ToolError(f"the disk of {sql} is full")

    def opened(meta: object) -> McpDatabase:
        server = FastMCP("other")
        server.tool(fails, name=TOOL_NAME, meta=meta if meta is None else {META: meta})
        monkeypatch.setattr(mcp_client, "_client", lambda _: Client(server))
        return McpDatabase(ToolServer("http://a-server/mcp"))

    return opened


def test_what_fails_at_the_server_is_said(served: Callable[[object], McpDatabase]) -> None:
    with served(described()) as database, pytest.raises(DatabaseFileError, match="the disk of x is full"):
        database.query("x")


@pytest.mark.parametrize(
    "meta",
    [None, "x", {}, described(tables=3), described(tables=[["a"]]), described(limits=3), described(dialect="x")],
)
def test_a_server_of_another_kind_or_version_is_refused_and_left(
    meta: object, served: Callable[[object], McpDatabase]
) -> None:
    before = set(threading.enumerate())
    with pytest.raises(DatabaseFileError, match="the MCP server http://a-server/mcp cannot be used"):
        served(meta)
    assert set(threading.enumerate()) <= before


@pytest.mark.slow
def test_a_command_is_started_opened_by_the_task_and_ended(command: list[str]) -> None:
    settings = load_settings(["agent.tool=mcp", f"agent.mcp_command={' '.join(command)}"])
    with TASK.databases(settings) as databases, databases.of(None) as database:
        assert database.query(FOUND).records == (("Drug 3",),)
        assert str(database.source).startswith("`")


@pytest.mark.slow
def test_a_command_that_was_killed_is_started_again_for_the_next_query(command: list[str]) -> None:
    before = descendants(os.getpid())
    with McpDatabase(ToolServer(command=shlex.join(command))) as database:
        (server,) = set(levels(os.getpid())[0]).difference(before)
        os.kill(server, signal.SIGKILL)
        assert database.query(FOUND).records == (("Drug 3",),)


@pytest.mark.parametrize("overrides", [[], ["agent.mcp_url=http://x/mcp", "agent.mcp_command=y"]])
def test_settings_that_name_no_server_or_two_are_refused(overrides: list[str]) -> None:
    with pytest.raises(ConfigError, match="exactly one of"):
        TASK.open_database(load_settings(["agent.tool=mcp", *overrides]))
