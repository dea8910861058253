"""The model writes, checks and rewrites statements in roles; what it is told never holds the gold statement."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from sql_agent.agent.rollout import run_rollout
from sql_agent.agent.workflows import approves
from sql_agent.config.endpoints import ModelEndpoint
from sql_agent.config.settings import Settings, load_settings
from sql_agent.schemas import Outcome, Question, RolloutRecord
from sql_agent.tasks.task import Task, load_task
from tests.support.chat_server import tool_call
from tests.support.judge_server import Server, serving
from tests.support.small_database import make_database

RIGHT, WRONG = "VERDICT: RIGHT", "The condition is missing.\nVERDICT: WRONG"
FAILS = "```sql\nSELECT names FROM ferry\n```"
ALL = "```sql\nSELECT name FROM ferry\n```"
ORDERED = "Here it is: ```sql\nSELECT name FROM ferry ORDER BY seats;\n```"


@pytest.fixture
def model() -> Iterator[Server]:
    with serving() as endpoint:
        yield endpoint


def asked(task: Task, settings: Settings, start: str) -> Question:
    of_both = [*task.questions(settings, "train"), *task.questions(settings, "val")]
    return next(question for question in of_both if question.question.startswith(start))


async def play(
    model: Server, task: Task, settings: Settings, question: Question, *script: str | dict[str, Any]
) -> RolloutRecord:
    model.script = list(script)
    endpoint = ModelEndpoint(f"{model.url}/v1", "m", 0.0)
    with task.databases(settings) as databases, databases.of(question.database) as database:
        return await run_rollout(question, task, endpoint, database, task.judge(settings), settings)


def last_messages(model: Server) -> list[str]:
    return [request["messages"][-1]["content"] for request in model.requests]


async def test_a_statement_that_the_check_approves_is_the_answer(model: Server, task: Task, settings: Settings) -> None:
    record = await play(model, task, settings, asked(task, settings, "List the names"), ORDERED, RIGHT)
    assert record.answer == "SELECT name FROM ferry ORDER BY seats"
    assert [reply.role for reply in record.replies] == ["write", "check"]
    assert record.reward is not None and (record.reward.total, record.reward.judge_name) == (1.0, "execution")
    check = last_messages(model)[1]
    assert '"records":[["Auk"],["Tern"],["Skua"]]' in check and record.answer in check
    assert "CREATE TABLE ferry" in model.requests[0]["messages"][0]["content"]


async def test_what_fails_or_is_not_approved_is_written_again_in_the_same_conversation(
    model: Server, task: Task, settings: Settings
) -> None:
    question = asked(task, settings, "List the names")
    record = await play(model, task, settings, question, FAILS, ALL, WRONG, ORDERED)
    assert [reply.role for reply in record.replies] == ["write", "rewrite", "check", "rewrite"]
    assert [call.answer.status for call in record.calls] == ["error", "ok", "ok"]
    assert record.reward is not None and record.reward.total == 1.0
    last = model.requests[-1]["messages"]
    assert [m["role"] for m in last] == ["system", "user", "assistant", "user", "assistant", "user"]
    assert last[2]["content"] == FAILS and "no such column: names" in last[3]["content"]
    assert "The condition is missing." in last[5]["content"]
    assert len(model.requests) == 4, "nobody checks the last statement, because it cannot be written again"


async def test_a_rewriting_that_changes_nothing_ends_the_rollout(model: Server, task: Task, settings: Settings) -> None:
    record = await play(model, task, settings, asked(task, settings, "List the names"), ALL, WRONG, ALL)
    assert [reply.role for reply in record.replies] == ["write", "check", "rewrite"]
    assert record.answer == "SELECT name FROM ferry"
    assert [call.sql for call in record.calls] == [record.answer]


async def test_a_wrong_result_is_worth_nothing(model: Server, task: Task, settings: Settings) -> None:
    record = await play(model, task, settings, asked(task, settings, "List the names"), ALL, RIGHT)
    assert record.reward is not None and record.reward.total == 0.0
    record = await play(model, task, settings, asked(task, settings, "List the names"), "I cannot tell", WRONG)
    assert record.outcome is Outcome.ANSWERED and record.reward is not None and record.reward.total == 0.0


@pytest.mark.parametrize("workflow", ["react", "check-rewrite"])
async def test_the_gold_statement_is_in_no_prompt(workflow: str, model: Server, task: Task, settings: Settings) -> None:
    agent = settings.agent.model_copy(update={"workflow": workflow})
    settings = settings.model_copy(update={"agent": agent})
    script = [FAILS, ALL, WRONG, ALL] if workflow == "check-rewrite" else [tool_call("SELECT 1"), ALL]
    for question in task.questions(settings, "train"):
        model.requests.clear()
        await play(model, task, settings, question, *script)
        told = "\n".join(str(message) for request in model.requests for message in request["messages"])
        assert question.sql and question.sql not in told
        assert question.question in told


async def test_an_agent_with_the_tool_answers_with_a_statement(model: Server, task: Task, settings: Settings) -> None:
    agent = settings.agent.model_copy(update={"workflow": "react"})
    settings = settings.model_copy(update={"agent": agent})
    record = await play(
        model, task, settings, asked(task, settings, "List the names"), tool_call("SELECT name FROM ferry"), ORDERED
    )
    assert record.reward is not None and record.reward.total == 1.0
    assert [reply.role for reply in record.replies] == ["", ""]


async def test_the_medical_task_ends_with_an_answer_made_of_the_result(model: Server, tmp_path: Path) -> None:
    settings = load_settings(
        [f"database.path={make_database(tmp_path / 'medical.db')}", "agent.workflow=check-rewrite", "judge.name=facts"]
    )
    question = Question(id="1", question="Which form has Drug 4?", answer="tablet", task_type="drug_field")
    sql = "SELECT form FROM drugs_info WHERE med_name = 'Drug 4'"
    record = await play(model, load_task("medical"), settings, question, f"```sql\n{sql}\n```", RIGHT, "tablet")
    assert [reply.role for reply in record.replies] == ["write", "check", "answer"]
    assert record.answer == "tablet"
    assert record.reward is not None and record.reward.total == pytest.approx(1.1)
    assert "not medical advice" in model.requests[2]["messages"][0]["content"]


async def test_a_statement_that_gets_a_hint_is_written_again_without_a_check(model: Server, tmp_path: Path) -> None:
    settings = load_settings(
        [f"database.path={make_database(tmp_path / 'medical.db')}", "agent.workflow=check-rewrite", "judge.name=facts"]
    )
    question = Question(id="1", question="In which form does Drug 1 come?", answer="tablet")
    missed, found = (
        f"```sql\nSELECT form FROM drugs_info WHERE med_name = '{name}'\n```" for name in ("Drugg 1", "Drug 1")
    )
    record = await play(model, load_task("medical"), settings, question, missed, found, RIGHT, "tablet")
    assert [reply.role for reply in record.replies] == ["write", "rewrite", "check", "answer"]
    assert "Drug 1" in model.requests[1]["messages"][-1]["content"]


def test_a_check_approves_unless_its_last_verdict_is_wrong() -> None:
    assert approves(RIGHT) and approves("**Verdict: right**") and approves("") and approves("fine")
    assert not approves(WRONG)
    assert not approves("VERDICT: RIGHT at first, but then VERDICT: WRONG")
