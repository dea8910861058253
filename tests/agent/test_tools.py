"""The tool: its JSON, its record of calls, and how it behaves inside openai-agents."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from agents.tool_context import ToolContext

from sql_agent.agent.tools import LAST, REPEATED, QueryTool, answer_json, function_tool, in_rollout
from sql_agent.database import Database, open_database
from sql_agent.schemas import TOOL_NAME, QueryAnswer, QueryLimits
from sql_agent.tasks.medical.tables import SCHEMA
from tests.support.small_database import make_database

DESCRIPTION = "Run one SELECT."


@pytest.fixture(scope="module")
def database(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Database]:
    path: Path = make_database(tmp_path_factory.mktemp("tools") / "medical.db")
    with open_database(path, SCHEMA, QueryLimits(deadline_s=0.5)) as opened:
        opened.query("SELECT 1")  # starts the first worker
        yield opened


async def invoke(tool: QueryTool, arguments: str) -> Any:
    wrapped = function_tool(tool, DESCRIPTION)
    context: ToolContext[None] = ToolContext(
        context=None, tool_name=TOOL_NAME, tool_call_id="call-1", tool_arguments=arguments
    )
    return json.loads(await wrapped.on_invoke_tool(context, arguments))


async def test_the_answer_is_compact_json_with_plain_chinese(database: Database) -> None:
    text = await QueryTool(database)("SELECT id, med_name FROM drugs_info WHERE id = 9001")
    assert text == '{"status":"ok","columns":["id","med_name"],"records":[[9001,"布洛芬"]],"count":1,"truncated":false}'


async def test_an_error_has_kind_message_and_hint_and_nothing_else(database: Database) -> None:
    shown = json.loads(await QueryTool(database)("SELECT name FROM drugs_info"))
    assert shown == {
        "status": "error",
        "error": {
            "kind": "unknown_column",
            "message": "no such column: name",
            "hint": "did you mean drugs_info.med_name or drugs_info.cate_name?",
        },
    }


async def test_an_empty_result_has_a_hint_that_is_kept_with_the_call(database: Database) -> None:
    tool = QueryTool(database)
    shown = json.loads(await tool("SELECT form FROM drugs_info WHERE med_name = '布络芬'"))
    assert shown == {
        "status": "ok", "columns": ["form"], "records": [], "count": 0, "truncated": False,
        "hint": "try: SELECT form FROM drugs_info WHERE med_name = '布洛芬'",
    }  # fmt: skip
    assert tool.calls[0].answer.hint == "try: SELECT form FROM drugs_info WHERE med_name = '布洛芬'"


async def test_a_statement_that_is_repeated_is_said_to_be_after_what_leads_on(database: Database) -> None:
    tool, sql = QueryTool(database), "SELECT form FROM drugs_info WHERE med_name = '布络芬'"
    leads_on = "try: SELECT form FROM drugs_info WHERE med_name = '布洛芬'"
    assert json.loads(await tool(sql))["hint"] == leads_on
    assert json.loads(await tool(sql))["hint"] == f"{leads_on}\n{REPEATED}"
    assert json.loads(await tool("SELECT 1"))["records"] == [[1]]
    await tool("SELECT name FROM drugs_info")
    assert json.loads(await tool("SELECT name FROM drugs_info"))["error"]["hint"].startswith("did you mean")
    assert json.loads(await tool("SELECT name FROM drugs_info"))["error"]["hint"].endswith(f"?\n{REPEATED}")
    assert json.loads(await tool("SELECT 1"))["hint"] == REPEATED
    again = in_rollout(QueryAnswer(status="ok", hint="try: a\ntry: b"), "c", ["c"], None)
    assert again.hint == f"try: b\ntry: a\n{REPEATED}", "the model did not follow the first line"


async def test_after_the_last_query_the_model_is_told_to_answer(database: Database) -> None:
    tool = QueryTool(database, max_calls=2)
    assert "hint" not in json.loads(await tool("SELECT 1"))
    assert json.loads(await tool("SELECT 2"))["hint"] == LAST


async def test_odd_values_are_still_json(database: Database) -> None:
    text = await QueryTool(database)(
        "SELECT 9e999, -9e999, CAST('a' AS BLOB), NULL, 1.5, overview FROM disease LIMIT 1"
    )
    cells = json.loads(text, parse_constant=lambda name: pytest.fail(f"{name} is not JSON"))["records"][0]
    assert cells == ["inf", "-inf", "<1 bytes of binary data>", None, 1.5, "overview of 1\nsecond line"]


def test_the_model_never_sees_where_the_rows_come_from() -> None:
    assert "from_tables" not in answer_json(
        QueryAnswer(status="ok", columns=("id",), records=((1,),), count=1, from_tables=True)
    )


async def test_every_call_is_recorded_with_its_time(database: Database) -> None:
    tool = QueryTool(database)
    await tool("SELECT count(*) FROM disease")
    await tool("DROP TABLE disease")
    await invoke(tool, "not json")
    assert [(call.sql, call.answer.status) for call in tool.calls] == [
        ("SELECT count(*) FROM disease", "ok"),
        ("DROP TABLE disease", "error"),
        ("not json", "error"),
    ]
    assert tool.calls[0].answer.from_tables
    assert 0 < tool.calls[0].seconds < 0.5


async def test_a_slow_statement_does_not_block_the_event_loop(database: Database) -> None:
    tool = QueryTool(database)
    slow = asyncio.create_task(tool("SELECT count(*) FROM disease a, disease b, disease c, disease d"))
    await asyncio.sleep(0.05)
    assert json.loads(await tool("SELECT 1"))["records"] == [[1]]
    assert not slow.done()
    assert json.loads(await slow)["error"]["kind"] == "timeout"


def test_the_tool_that_the_model_sees(database: Database) -> None:
    wrapped = function_tool(QueryTool(database), DESCRIPTION)
    assert wrapped.name == "query_database_by_sql"
    assert wrapped.params_json_schema["required"] == ["sql"]
    assert wrapped.params_json_schema["properties"]["sql"]["type"] == "string"
    assert wrapped.params_json_schema["additionalProperties"] is False
    assert wrapped.description == DESCRIPTION


async def test_a_call_through_openai_agents(database: Database) -> None:
    shown = await invoke(QueryTool(database), json.dumps({"sql": "SELECT med_name FROM drugs_info WHERE id = 3"}))
    assert shown["records"] == [["Drug 3"]]


@pytest.mark.parametrize(
    ("arguments", "part"),
    [
        ("", "not JSON"),
        ("SELECT 1", "not JSON"),
        ('{"sql": "SELECT 1"', "not JSON"),
        ("[" * 100_000, "not JSON"),
        ("null", "text under"),
        ('"SELECT 1"', "text under"),
        ("{}", "text under"),
        ('{"query": "SELECT 1"}', "text under"),
        ('{"sql": 1}', "text under"),
        ('{"sql": "SELECT 1", "limit": 3}', "limit"),
    ],
)
async def test_malformed_arguments_tell_the_model_what_is_wrong(database: Database, arguments: str, part: str) -> None:
    tool = QueryTool(database)
    shown = await invoke(tool, arguments)
    assert shown["error"]["kind"] == "malformed_call"
    assert part in shown["error"]["message"]
    assert '{"sql"' in shown["error"]["hint"]
    assert len(tool.calls) == 1
