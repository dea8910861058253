"""The agent in a runner: a database that cannot be opened loses one rollout; the model's calls are numbered."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import agentlightning as agl

from sql_agent.agent.rollout import shared_client
from sql_agent.config.settings import load_settings
from sql_agent.rollouts.lit_agent import CallNumbers, SqlLitAgent
from sql_agent.rollouts.run_settings import route_resources, sent_settings
from sql_agent.schemas import DropCause, Question, RolloutRecord
from tests.support.judge_server import completion, serving
from tests.support.small_database import make_database


def rename(path: Path, old: str, new: str) -> None:
    with closing(sqlite3.connect(path)) as connection:
        connection.execute(f"ALTER TABLE {old} RENAME TO {new}")


async def test_a_database_that_cannot_be_opened_loses_the_rollout_with_its_cause(tmp_path: Path) -> None:
    path = make_database(tmp_path / "medical.db")
    settings, seen = load_settings([f"database.path={path}"]), list[RolloutRecord]()
    agent = SqlLitAgent(settings, on_record=lambda _, record: seen.append(record))
    rollout = SimpleNamespace(rollout_id="r", attempt=SimpleNamespace(attempt_id="a"), mode="train")
    question = Question(id="1", question="?", answer="a")
    with serving() as model:
        model.default = "no"
        proxy: Any = SimpleNamespace(get_base_url=lambda *_: f"{model.url}/v1", model="m", api_key="k")
        resources = route_resources(proxy, sent_settings(settings, "r"))
        rename(path, "drugs_info", "moved")
        spans = await agent.training_rollout_async(question.model_dump(), resources, rollout)
        rename(path, "moved", "drugs_info")
        assert await agent.training_rollout_async(question.model_dump(), resources, rollout)
    lost, run = seen
    assert lost.dropped is not None and lost.dropped.cause is DropCause.DATABASE
    assert "drugs_info" in lost.dropped.detail
    assert [RolloutRecord.model_validate(agl.get_object_value(span)) for span in spans] == [lost], "no reward of 0"
    assert run.dropped is None and run.answer == "no"


async def test_calls_are_numbered_by_rollout_and_forgotten_with_it() -> None:
    numbers = CallNumbers()
    with serving() as proxy:
        proxy.default = completion("hello")
        async with shared_client(direct=True, on_request=numbers) as client:
            sent = {
                rollout: [
                    (await client.post(f"{proxy.url}/rollout/{rollout}/attempt/a/v1/chat/completions", json={})).request
                    for _ in range(calls)
                ]
                for rollout, calls in {"one": 2, "other": 1}.items()
            }
            unnumbered = await client.post(f"{proxy.url}/v1/chat/completions", json={})
    assert [request.headers["x-sequence-id"] for request in sent["one"]] == ["1", "2"]
    assert [request.headers["x-sequence-id"] for request in sent["other"]] == ["1"]
    assert "x-sequence-id" not in unnumbered.request.headers
    assert [numbers.pop("one"), numbers.pop("one"), numbers.pop("other")] == [2, 0, 1]
