"""What the model gets wrong is an outcome with a reason and a score; what the infrastructure gets wrong is dropped."""

from __future__ import annotations

import json
import shutil
import sqlite3
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from fastapi import FastAPI, Request
from fastapi.responses import JSONResponse
from starlette.responses import Response

from sql_agent.agent.rollout import run_rollout
from sql_agent.config.endpoints import ModelEndpoint
from sql_agent.config.settings import load_settings
from sql_agent.database import open_database
from sql_agent.errors import JudgeError
from sql_agent.reward import JudgeCase, Verdict
from sql_agent.reward.judges.facts_judge import FactsJudge
from sql_agent.schemas import Drop, DropCause, Question, RolloutRecord
from sql_agent.tasks.medical.medical_task import TASK
from sql_agent.tasks.medical.tables import SCHEMA
from sql_agent.training.serving.server import ServerThread
from tests.support.small_database import make_database

QUESTION = Question(id="1", question="Which form has Drug 4?", answer="tablet", task_type="drug_field")
SQL = "SELECT form FROM drugs_info WHERE med_name = 'Drug 4'"


class Model:
    """An OpenAI-compatible server that plays a script: texts, tool calls (name, arguments), status codes, responses."""

    def __init__(self) -> None:
        self.script: list[str | tuple[str, str] | int | Response] = []
        self.requests: list[dict[str, Any]] = []
        app = FastAPI()

        @app.post("/v1/chat/completions")
        async def complete(http: Request) -> Response:
            self.requests.append(await http.json())
            return self._reply(self.script[min(len(self.requests), len(self.script)) - 1])

        self.server = ServerThread()
        self.server.start(app)

    def _reply(self, step: str | tuple[str, str] | int | Response) -> Response:
        if isinstance(step, Response):
            return step
        if isinstance(step, int):
            error = "the model's maximum context length is 9" if step == 400 else "down"
            return JSONResponse({"error": {"message": error, "type": "x", "code": step}}, step)
        message: dict[str, Any] = {"role": "assistant", "content": step if isinstance(step, str) else None}
        if isinstance(step, tuple):
            function = {"name": step[0], "arguments": step[1]}
            message["tool_calls"] = [{"id": f"call_{len(self.requests)}", "type": "function", "function": function}]
        usage = {"prompt_tokens": 1, "completion_tokens": 1, "total_tokens": 2}
        choice = {"index": 0, "message": message, "finish_reason": "stop"}
        return JSONResponse(
            {"id": "x", "object": "chat.completion", "created": 0, "model": "m", "choices": [choice], "usage": usage}
        )


@pytest.fixture
def model() -> Iterator[Model]:
    model = Model()
    yield model
    model.server.stop()


async def play(model: Model, tmp_path: Path, *script: Any, judge: Any = None) -> RolloutRecord:
    model.script = list(script)
    endpoint = ModelEndpoint(model.server.base_url, "m", 0.0)
    settings = load_settings(["agent.max_turns=3"])
    with open_database(make_database(tmp_path / "medical.db"), SCHEMA) as database:
        return await run_rollout(QUESTION, TASK, endpoint, database, judge or FactsJudge(TASK.words), settings)


def call(sql: str) -> tuple[str, str]:
    return ("query_database_by_sql", json.dumps({"sql": sql}))


def refused(message: str, code: str | None = None) -> Response:
    return JSONResponse({"error": {"message": message, "type": "invalid_request_error", "code": code}}, 400)


def lock(path: Path) -> sqlite3.Connection:
    writer = sqlite3.connect(path, isolation_level=None)
    writer.execute("BEGIN EXCLUSIVE")
    return writer


@pytest.mark.parametrize(
    ("spoil", "why"),
    [
        (lock, "locked"),
        (lambda path: path.unlink(), "is gone"),
        (lambda path: shutil.copy(path, f"{path}2") and Path(f"{path}2").replace(path), "was replaced"),
    ],
)
async def test_a_database_that_fails_loses_the_rollout_and_is_never_the_models_fault(
    model: Model, tmp_path: Path, spoil: Callable[[Path], object], why: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sql_agent.database.local.OUTAGE_S", 0.0)
    model.script = [call(SQL), "I found nothing."]
    endpoint, path = ModelEndpoint(model.server.base_url, "m", 0.0), make_database(tmp_path / "m.db")
    with open_database(path, SCHEMA) as database:
        kept = spoil(path)
        record = await run_rollout(QUESTION, TASK, endpoint, database, FactsJudge(TASK.words), load_settings())
        del kept
    assert record.reward is None
    assert record.dropped is not None and record.dropped.cause is DropCause.DATABASE
    assert why in record.dropped.detail


def thought(text: str, answer: str | None) -> Response:
    message = {"role": "assistant", "content": answer, "reasoning_content": text}
    counts = {"prompt_tokens": 1, "completion_tokens": 9, "total_tokens": 10}
    usage = counts | {"completion_tokens_details": {"reasoning_tokens": 8}}
    choice = {"index": 0, "message": message, "finish_reason": "stop"}
    return JSONResponse(
        {"id": "x", "object": "chat.completion", "created": 0, "model": "m", "choices": [choice], "usage": usage}
    )


async def test_a_thought_is_recorded_and_counted_but_not_judged(model: Model, tmp_path: Path) -> None:
    record = await play(model, tmp_path, call(SQL), thought("The judge wants a form.", "Tablet."))
    assert record.answer == "Tablet."
    assert (record.replies[-1].reasoning, record.replies[-1].thought_tokens) == ("The judge wants a form.", 8)
    assert record.reward is not None and record.reward.total == pytest.approx(1.1)
    assert "chat_template_kwargs" not in model.requests[0]


async def test_a_thought_without_an_answer_is_no_output(model: Model, tmp_path: Path) -> None:
    record = await play(model, tmp_path, call(SQL), thought("And then", None))
    assert record.outcome == "no_output"
    assert record.reward is not None and record.reward.judge == 0.0


async def test_the_model_is_told_whether_to_think(model: Model, tmp_path: Path) -> None:
    model.script = ["Tablet."]
    endpoint, settings = ModelEndpoint(model.server.base_url, "m", 0.0), load_settings(["agent.thinking=off"])
    with open_database(make_database(tmp_path / "medical.db"), SCHEMA) as database:
        await run_rollout(QUESTION, TASK, endpoint, database, FactsJudge(TASK.words), settings)
    assert model.requests[0]["chat_template_kwargs"] == {"enable_thinking": False}


async def test_a_query_and_its_answer_are_recorded_and_rewarded(model: Model, tmp_path: Path) -> None:
    record = await play(model, tmp_path, call(SQL), "Tablet.")
    assert (record.outcome, record.turns, record.dropped) == ("answered", 2, None)
    assert record.calls[0].answer.records == (("tablet",),)
    assert record.reward is not None
    assert record.reward.total == pytest.approx(1.1)
    tool_message = model.requests[1]["messages"][-1]
    assert json.loads(tool_message["content"])["records"] == [["tablet"]]
    assert "from_tables" not in tool_message["content"]


async def test_each_reply_of_the_model_is_recorded_as_it_was_written(model: Model, tmp_path: Path) -> None:
    record = await play(model, tmp_path, call(SQL), ("look_up", "{broken"))
    first, second = record.replies
    assert (first.text, first.tool_calls[0].name) == ("", "query_database_by_sql")
    assert json.loads(first.tool_calls[0].arguments) == {"sql": SQL}
    assert second.tool_calls[0].arguments == "{broken", "also what no tool could be called with"
    assert (second.prompt_tokens, second.completion_tokens, second.finish_reason) == (1, 1, "stop")
    assert record.usage.completion_tokens == 2
    assert 0 < first.seconds < record.seconds


@pytest.mark.parametrize(
    ("body", "media_type", "why"),
    [
        ("<html>log in</html>", "text/html", "is it an OpenAI-compatible server"),
        ('{"choices": [', "application/json", "damaged JSON"),
        (b'{"choices": "\xff"}', "application/json", "damaged JSON"),
        ('{"error": {"message": "the provider is down", "code": 502}}', "application/json", "the provider is down"),
        ('{"choices": []}', "application/json", "returned no choices"),
    ],
)
async def test_what_is_no_completion_is_a_failure_of_the_server_and_not_the_models(
    model: Model, tmp_path: Path, body: str | bytes, media_type: str, why: str
) -> None:
    record = await play(model, tmp_path, Response(body, media_type=media_type))
    assert record.dropped is not None and record.dropped.cause is DropCause.MODEL_SERVER
    assert why in record.dropped.detail


@pytest.mark.parametrize(
    "message",
    [
        None,
        {"content": [{"type": "text", "text": "tablet"}]},
        {"tool_calls": [{"id": "1", "type": "function", "function": {"name": "x", "arguments": None}}]},
        {"tool_calls": [{"id": "1", "type": "function", "function": None}]},
    ],
)
async def test_a_reply_in_another_form_loses_its_rollout_only(model: Model, tmp_path: Path, message: Any) -> None:
    record = await play(model, tmp_path, JSONResponse({"choices": [{"index": 0, "message": message}]}))
    assert record.dropped is not None and record.dropped.cause is DropCause.MODEL_SERVER
    assert "does not fit OpenAI" in record.dropped.detail


async def test_an_error_of_a_query_reaches_the_model_with_a_hint_and_it_can_try_again(
    model: Model, tmp_path: Path
) -> None:
    record = await play(model, tmp_path, call("SELECT from_ FROM drugs_info"), call(SQL), "tablet")
    assert [c.answer.status for c in record.calls] == ["error", "ok"]
    shown = json.loads(model.requests[1]["messages"][-1]["content"])
    assert "drugs_info.form" in shown["error"]["hint"]
    assert record.reward is not None
    assert record.reward.rule == 0.1


@pytest.mark.parametrize(
    ("script", "outcome", "turns"),
    [
        ([("look_up", "{}"), "tablet"], "unknown_tool", 1),
        (["<tool_call>\n{broken"], "malformed_call", 1),
        ([call(SQL)], "too_many_turns", 3),
        ([call(SQL), 400], "context_overflow", 1),
        ([call(SQL), refused("the request (9 tokens) exceeds the available context size (8)")], "context_overflow", 1),
        ([call(SQL), refused("too many tokens", "context_length_exceeded")], "context_overflow", 1),
    ],
)
async def test_failures_of_the_model_are_scored_with_a_reason(
    model: Model, tmp_path: Path, script: list[Any], outcome: str, turns: int
) -> None:
    record = await play(model, tmp_path, *script)
    assert (record.outcome, record.turns, record.dropped) == (outcome, turns, None)
    assert record.reward is not None
    assert record.reward.judge == 0.0


async def test_arguments_that_are_no_json_are_told_to_the_model(model: Model, tmp_path: Path) -> None:
    record = await play(model, tmp_path, ("query_database_by_sql", "{sql: SELECT"), call(SQL), "tablet")
    assert record.outcome == "answered"
    assert "malformed_call" in model.requests[1]["messages"][-1]["content"]


async def test_a_server_that_is_down_drops_the_rollout_instead_of_scoring_it(model: Model, tmp_path: Path) -> None:
    record = await play(model, tmp_path, call(SQL), 500)
    assert record.reward is None
    assert record.dropped is not None
    assert record.dropped.cause is DropCause.MODEL_SERVER
    assert record.dropped.detail.startswith("InternalServerError")
    assert len(model.requests) == 2, "a retry inside the attempt would pollute its triplets"


class BrokenJudge:
    name = "broken"

    async def grade(self, case: JudgeCase) -> Verdict:
        raise JudgeError("no grade")


async def test_a_judge_that_fails_drops_the_rollout_and_keeps_what_happened(model: Model, tmp_path: Path) -> None:
    record = await play(model, tmp_path, call(SQL), "tablet", judge=BrokenJudge())
    assert record.reward is None
    assert record.dropped == Drop(cause=DropCause.JUDGE, detail="no grade")
    assert record.answer == "tablet"
    assert len(record.calls) == 1
