"""Provide our tool and a reward to verl's own tool agent loop; see verl_step_time.py."""

from __future__ import annotations

import asyncio
import os
from functools import cache
from pathlib import Path
from typing import Any

from verl.tools.function_tool import function_tool

from sql_agent.agent.tools import QueryTool, tool_schema
from sql_agent.database import Database, open_database
from sql_agent.reward import JudgeCase
from sql_agent.reward.judges.facts_judge import FactsJudge
from sql_agent.schemas import Question
from sql_agent.tasks.medical.medical_task import TASK


@cache
def _database() -> Database:
    return open_database(Path(os.environ["BENCH_DB"]), TASK.schema)


@function_tool("query_database_by_sql", schema=tool_schema(TASK, _database()))  # type: ignore[untyped-decorator]
async def query_database_by_sql(sql: str) -> str:
    """Run one SELECT."""
    return await QueryTool(_database())(sql)


def compute_score(data_source: str, solution_str: str, ground_truth: str, extra_info: Any = None, **_: Any) -> float:
    """Return the reference judge's score of the last answer; the loop keeps no rows, so no answer is grounded."""
    question = Question.model_validate_json(extra_info["question"])
    answer = solution_str.rpartition("assistant\n")[2]
    verdict = asyncio.run(FactsJudge(TASK.words).grade(JudgeCase(question=question, answer=answer, calls=())))
    return verdict.score
