"""A runner takes the settings of its rollouts from the algorithm, and refuses when it was given others."""

from __future__ import annotations

import asyncio
import json
import threading
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import agentlightning as agl
import pytest

from sql_agent.config.settings import Settings, load_settings
from sql_agent.database import DatabasePool
from sql_agent.errors import ConfigError
from sql_agent.rollouts.lit_agent import SqlLitAgent
from sql_agent.rollouts.run_settings import check_same, route_resources, sent_settings, settings_here, text_of
from sql_agent.schemas import Question
from sql_agent.tasks.task import load_task
from tests.support.judge_server import serving
from tests.support.processes import free_port
from tests.support.small_database import make_database


def sent(settings: Settings) -> str:
    return text_of(
        route_resources(agl.ProxyLLM(endpoint="http://127.0.0.1:1", model="m"), sent_settings(settings, "r"))
    )


@pytest.fixture
def theirs(tmp_path: Path) -> Settings:
    make_database(tmp_path / "medical.db")
    return load_settings([f"database.path={tmp_path / 'medical.db'}", "agent.max_tokens=17", "runner.concurrency=3"])


def test_a_runner_takes_what_decides_a_rollout_and_keeps_what_belongs_to_its_host(
    theirs: Settings, tmp_path: Path
) -> None:
    own = load_settings([f"judge.cache_dir={tmp_path}", "runner.n_runners=9", "agent.max_tokens=17", "train.lr=1"])
    _, here = settings_here(sent(theirs), own)
    assert here.agent == theirs.agent and here.database == theirs.database
    assert (here.judge.cache_dir, here.runner.n_runners, here.runner.concurrency) == (tmp_path, 9, 32)


def test_a_runner_that_was_given_other_settings_names_the_keys_that_differ(theirs: Settings) -> None:
    own = load_settings(["agent.max_tokens=64", "lang=zh", "database.max_rows=20"])
    with pytest.raises(ConfigError) as caught:
        settings_here(sent(theirs), own)
    assert "agent.max_tokens=64, in the run 17; lang='zh', in the run 'en'" in caught.value.message
    assert "max_rows" not in caught.value.message, "it is the same there"


def test_nothing_of_the_store_runs_a_command_or_loads_code_that_the_runner_did_not_name(theirs: Settings) -> None:
    def changed(**changes: object) -> str:
        message = json.loads(sent(theirs))
        for key, value in changes.items():
            section = message["settings"] if key == "task" else message["settings"]["agent"]
            section[key] = value
        return json.dumps(message)

    _, here = settings_here(changed(mcp_command="touch /tmp/x", mcp_url="http://10.0.0.9/mcp"), load_settings())
    assert (here.agent.mcp_command, here.agent.mcp_url) == (None, None)
    own = load_settings(["agent.mcp_command=sql-agent mcp"])
    assert settings_here(changed(mcp_url="http://10.0.0.9/mcp"), own)[1].agent.mcp_command == "sql-agent mcp"
    library = "tests.support.library:TASK"
    with pytest.raises(ConfigError, match=f"the task {library}, whose code runs here only if this runner names"):
        settings_here(changed(task=library), load_settings())
    assert settings_here(changed(task=library), load_settings([f"task={library}"]))[1].task == library
    assert settings_here(changed(task="spider"), load_settings())[1].task == "spider"


def test_another_database_or_another_judge_of_this_host_is_named(theirs: Settings, tmp_path: Path) -> None:
    taken, here = settings_here(sent(theirs), load_settings())
    check_same(taken, here)
    make_database(tmp_path / "other.db")
    with (tmp_path / "other.db").open("ab") as file:
        file.write(b"\0")
    taken, here = settings_here(sent(theirs), load_settings([f"database.path={tmp_path / 'other.db'}"]))
    with pytest.raises(ConfigError, match=r"other\.db differs from the database"):
        check_same(taken, here)
    with pytest.raises(ConfigError, match="this runner has the judge facts"):
        check_same(taken.model_copy(update={"judge": "facts/0"}), here)


async def test_rollouts_run_with_the_settings_of_their_own_algorithm_and_the_others_go_on_while_one_is_prepared(
    theirs: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("http_proxy", f"http://127.0.0.1:{free_port()}")  # which is for servers of others
    loop = asyncio.get_running_loop()

    def beside_the_loop(slow: Callable[..., Any]) -> Callable[..., Any]:
        def checked(*args: Any) -> Any:
            turned = threading.Event()
            loop.call_soon_threadsafe(turned.set)
            assert turned.wait(10), f"the event loop stands still during {slow.__name__}"
            return slow(*args)

        return checked

    monkeypatch.setattr("sql_agent.rollouts.lit_agent.load_task", beside_the_loop(load_task))
    # It is called when a database was opened, and when it is given back.
    monkeypatch.setattr(DatabasePool, "_close_unused", beside_the_loop(DatabasePool._close_unused))
    agent = SqlLitAgent(load_settings())
    rollout = SimpleNamespace(rollout_id="r", attempt=SimpleNamespace(attempt_id="a"), mode="train")
    question = Question(id="1", question="?", answer="a").model_dump()
    others = theirs.model_copy(update={"agent": theirs.agent.model_copy(update={"max_tokens": 23})})
    with serving() as model:
        model.default = "no"
        proxy: Any = SimpleNamespace(get_base_url=lambda *_: f"{model.url}/v1", model="m", api_key="k")
        for settings in (theirs, others, theirs):
            await agent.training_rollout_async(question, route_resources(proxy, sent_settings(settings, "r")), rollout)
    assert [request["max_tokens"] for request in model.requests] == [17, 23, 17]
