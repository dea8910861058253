"""Replies of a scripted chat model, for the server of tests/support/judge_server.py."""

from __future__ import annotations

import json
from typing import Any

from tests.support.judge_server import completion


def tool_call(sql: str) -> dict[str, Any]:
    """A reply that calls the query tool with `sql`."""
    reply = completion("")
    function = {"name": "query_database_by_sql", "arguments": json.dumps({"sql": sql})}
    call = {"id": f"call-{abs(hash(sql))}", "type": "function", "function": function}
    reply["choices"][0]["message"] = {"role": "assistant", "content": None, "tool_calls": [call]}
    return reply
