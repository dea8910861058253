"""Algorithm and runners in terminals of their own share a store, and each sees what becomes of the other."""

from __future__ import annotations

import asyncio
import os
import re
import shlex
import signal
import socket
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import agentlightning as agl
import pytest

from sql_agent.config.settings import load_settings
from sql_agent.errors import ConfigError
from sql_agent.rollouts.lease import LeaseHolder, read_lease
from sql_agent.rollouts.run_role import StoreAddress, check_store
from sql_agent.rollouts.run_settings import route_resources, sent_settings
from tests.support.prepared_python import PreparedProcess
from tests.support.processes import (
    ROOT,
    assert_nothing_left,
    family_and_ports,
    free_port,
    lines,
    served_store,
    start,
    wait_for,
)
from tests.support.small_database import make_database
from tests.support.tiny_training import tiny_training

RUNNER = {"AGL_CURRENT_ROLE": "runner", "AGL_MANAGED_STORE": "0"}
SHOWN = re.compile(r"(train|val  ) \d+ queries, reward \d\.\d{3}, .* s: ")


@contextmanager
def terminal(process: PreparedProcess) -> Iterator[PreparedProcess]:
    """End `process`, which has a session of its own, with the context."""
    try:
        yield process
    finally:
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()


@contextmanager
def shell(command: str, log: Path, **environment: str) -> Iterator[PreparedProcess]:
    """Start a command of the documentation, which writes into the file `log`; end it with the context."""
    words = shlex.split(command)
    program = next(number for number, word in enumerate(words) if "=" not in word)
    variables = dict(word.split("=", 1) for word in words[:program])
    words = words[program:]
    script = ROOT / words.pop(1) if words[0] == "python" else Path(sys.executable).with_name(words[0])
    with terminal(start(words[1:], script=script, output=log, **environment, **variables)) as process:
        yield process


def answers(port: int) -> bool:
    with socket.socket() as client:
        return client.connect_ex(("127.0.0.1", port)) == 0


def kill_with_rollouts_in_hand(runner: PreparedProcess, store: str) -> None:
    """Kill the only runner of the run at `store` at a moment when it has taken rollouts and not given them back."""

    async def taken() -> bool:
        client = agl.LightningStoreClient(store)
        try:
            return bool(await client.query_rollouts(status_in=["preparing", "running"]))
        finally:
            await client.close()

    while True:
        os.killpg(runner.pid, signal.SIGSTOP)
        if asyncio.run(taken()):
            os.killpg(runner.pid, signal.SIGKILL)
            return
        os.killpg(runner.pid, signal.SIGCONT)
        time.sleep(0.05)


@contextmanager
def web_page() -> Iterator[str]:
    """Answer every GET with a page, as no store does; yields the address."""

    class Page(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(200)
            self.end_headers()
            self.wfile.write(b"<html>")

        def log_message(self, *_: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Page)
    threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True).start()
    yield f"http://127.0.0.1:{server.server_port}"
    server.shutdown()
    server.server_close()


def says(log: Path, text: str) -> Callable[[], bool]:
    return lambda: text in log.read_text()


def as_variables(arguments: list[str]) -> dict[str, str]:
    """Turn the arguments of a run into environment variables, so that a command can be run as it stands."""
    flags = {"--model": "model", "--train-file": "data.train_file", "--val-file": "data.val_file"}
    pairs = [argument.split("=", 1) for argument in arguments if not argument.startswith("--n-runners")]
    return {"SQL_AGENT_" + flags.get(key, key).upper().replace(".", "__"): value for key, value in pairs}


def page_commands() -> list[list[str]]:
    """Return the commands of docs/roles.md for terminals that share a store, without comments."""
    page = (ROOT / "docs" / "roles.md").read_text(encoding="utf-8")
    blocks = re.findall(r"```bash\n(agl store .*?)```", page, re.DOTALL)
    return [[line.partition("#")[0].strip() for line in block.splitlines()] for block in blocks]


@pytest.mark.slow
@pytest.mark.parametrize("commands", page_commands(), ids=["one role", "two roles"])
def test_the_commands_of_the_page_for_several_terminals_train_as_they_stand(
    commands: list[str], tmp_path: Path, tiny_model_folder: Path
) -> None:
    settings = as_variables(tiny_training(tmp_path, tiny_model_folder))
    port = free_port() if answers(4747) else 4747  # another program here may use the page's port
    store, *others = (command.replace("4747", str(port)) for command in commands)
    few = {"SQL_AGENT_RUNNER__N_RUNNERS": "2"}
    store_log, run_log, runner_log = (tmp_path / f"{name}.log" for name in ("store", "run", "runner"))
    with shell(store, store_log) as server:
        wait_for(lambda: answers(port), server)
        with shell(others[-1], run_log, **few, **settings) as run:
            if len(others) > 1:
                # It is told nothing of the run: settings and database come from the algorithm.
                with shell(others[0], runner_log, **few) as runner:
                    wait_for(says(runner_log, "this runner leaves"), runner, timeout=150)
                    assert runner.wait(30) == 0
                said = runner_log.read_text().splitlines()
                assert said[0].startswith("Waiting for an algorithm")
                taken = "task medical, language en, judge facts; 2 runner processes"
                assert f"Settings taken from the run r: {taken}" in said
                shown = [line for line in said if SHOWN.match(line)]
                assert len(shown) >= 8 and said[-1] == "The run r finished; this runner leaves"
            assert run.wait(150) == 0, run_log.read_text()
    (step,) = lines(tmp_path / "runs" / "r" / "metrics.jsonl")
    assert step["rollouts/with_triplets"] == step["rollouts/finished"] == 4
    assert "Unclosed" not in run_log.read_text()


@pytest.mark.slow
def test_rollouts_of_a_runner_that_dies_are_given_to_another(tmp_path: Path, tiny_model_folder: Path) -> None:
    arguments = [*tiny_training(tmp_path, tiny_model_folder), "train.steps=8", "train.save_every=100"]
    metrics = tmp_path / "runs" / "r" / "metrics.jsonl"
    logs = [tmp_path / f"{name}.log" for name in ("run", "doomed", "other")]
    with served_store() as (_, address):
        shared = ["--external-store-address", address]
        one = [*shared, "--n-runners=1"]
        algorithm = {"AGL_CURRENT_ROLE": "algorithm", "AGL_MANAGED_STORE": "0"}
        with (
            terminal(start([*shared, *arguments], output=logs[0], **algorithm)) as run,
            terminal(start(one, output=logs[1], **RUNNER)) as doomed,
        ):
            wait_for(lambda: len(lines(metrics)) >= 2, run, timeout=150)
            wait_for(says(logs[1], "train "), doomed)
            kill_with_rollouts_in_hand(doomed, address)
            with terminal(start([*one, "-q"], output=logs[2], **RUNNER)) as other:
                wait_for(says(logs[0], "gave no sign of life; "), run, timeout=30)
                assert run.wait(150) == 0, logs[0].read_text()
                assert other.wait(30) == 0
    steps = lines(metrics)
    assert [step["rollouts/kept"] for step in steps] == [4] * 8
    assert all(step["rollouts/enqueued"] - step["rollouts/failed"] == 4 for step in steps)
    assert "train " not in logs[2].read_text(), "-q prints no line a rollout"


@pytest.mark.slow
async def test_a_runner_waits_for_a_store_that_is_gone_and_leaves_when_its_run_has_ended(tmp_path: Path) -> None:
    make_database(tmp_path / "medical.db")
    settings = load_settings([f"database.path={tmp_path / 'medical.db'}"])
    log, refusing_log = tmp_path / "runner.log", tmp_path / "refusing.log"
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]

    async def until(text: str) -> None:
        async with asyncio.timeout(60):
            while not says(log, text)():  # noqa: ASYNC110  another process writes it
                await asyncio.sleep(0.1)

    with web_page() as proxy, served_store(port) as (store, address):
        command = ["--n-runners=1", "--external-store-address", address]
        with terminal(start(command, output=log, **RUNNER)) as runner:
            await until("Waiting for an algorithm")
            store.kill()
            await until("does not answer")
            family, ports = family_and_ports(runner)
            with served_store(port):
                client = agl.LightningStoreClient(address)
                route = agl.ProxyLLM(endpoint=proxy, model="m")
                resources = await client.add_resources(route_resources(route, sent_settings(settings, "night")))
                holder = LeaseHolder(client, "1", "night")
                assert await holder.acquire() is None
                await until("The run night starts; this runner waits")
                await holder.publish(resources.resources_id)
                await until("Settings taken from the run night")
                with terminal(start([*command, "agent.max_turns=7"], output=refusing_log, **RUNNER)) as refusing:
                    assert await asyncio.to_thread(refusing.wait, 60) == 2
                await holder.release("was interrupted")
                await client.close()
                assert await asyncio.to_thread(runner.wait, 60) == 0
    assert log.read_text().splitlines()[-1] == "The run night was interrupted; this runner leaves"
    assert "agent.max_turns=7, in the run 4" in refusing_log.read_text()
    assert_nothing_left(family, ports)


def test_what_is_no_store_is_said_in_one_line() -> None:
    with web_page() as page, pytest.raises(ConfigError, match="is not an agent-lightning store"):
        check_store(StoreAddress(page))


@pytest.mark.slow
def test_a_runner_that_is_interrupted_says_that_it_leaves_and_ends_with_130(tmp_path: Path) -> None:
    log = tmp_path / "runner.log"
    with served_store(program="sql-agent") as (_, address):
        command = ["--n-runners=1", "--external-store-address", address]
        with terminal(start(command, output=log, **RUNNER)) as runner:
            wait_for(says(log, "Waiting for an algorithm"), runner)
            runner.send_signal(signal.SIGINT)
            assert runner.wait(30) == 130
    assert log.read_text().splitlines()[-1] == "This runner leaves; other runners run its unfinished rollouts again"


@pytest.mark.slow
async def test_an_interrupted_store_ends_after_the_run_that_uses_it() -> None:
    with served_store(program="sql-agent") as (store, address):
        client = agl.LightningStoreClient(address)
        holder = LeaseHolder(client, "1", "night")
        assert await holder.acquire() is None
        store.send_signal(signal.SIGINT)
        await asyncio.sleep(2)
        assert await read_lease(client), "the store still answers"
        await holder.release("was interrupted")
        await client.close()
        assert await asyncio.to_thread(store.wait, 30) == 0
