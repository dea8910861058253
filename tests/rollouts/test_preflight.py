"""A broken path between model and store is found before the first step, and named."""

from __future__ import annotations

import asyncio
import os
import signal
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import agentlightning as agl
import httpx
import pytest
from fastapi import FastAPI, Request
from fastapi.responses import JSONResponse

from sql_agent.config.settings import load_settings
from sql_agent.errors import PreflightError
from sql_agent.rollouts.llm_proxy import ServedModel
from sql_agent.rollouts.preflight import check_opentelemetry, check_triplet
from sql_agent.rollouts.processes import RunProcesses
from sql_agent.rollouts.run_role import StoreAddress
from sql_agent.rollouts.spans import TokenIdAdapter
from sql_agent.rollouts.supervisor import Ended
from sql_agent.training.serving.server import ServerThread
from tests.support.process_tree import descendants
from tests.support.processes import free_port


@pytest.fixture
def server_without_token_ids() -> Iterator[str]:
    """An OpenAI-compatible server that answers well but, unlike vLLM, returns no token ids."""
    app = FastAPI()

    @app.post("/v1/chat/completions")
    async def complete() -> dict[str, Any]:
        message = {"role": "assistant", "content": "hello"}
        usage = {"prompt_tokens": 1, "completion_tokens": 1, "total_tokens": 2}
        choice = {"index": 0, "message": message, "finish_reason": "stop"}
        return {"id": "x", "object": "chat.completion", "created": 0, "model": "m", "choices": [choice], "usage": usage}

    server = ServerThread()
    server.start(app)
    yield server.base_url
    server.stop()


@pytest.fixture
def server_with_a_small_context() -> Iterator[str]:
    """A server that refuses every call as too long, in the words of ours."""
    app = FastAPI()

    @app.post("/v1/chat/completions")
    async def complete() -> JSONResponse:
        reason = "the model's maximum context length is 10, requested: 34 prompt and 4 new tokens"
        return JSONResponse({"error": {"message": reason, "type": "BadRequestError", "code": 400}}, status_code=400)

    server = ServerThread()
    server.start(app)
    yield server.base_url
    server.stop()


@pytest.fixture
def processes() -> Iterator[RunProcesses]:
    processes = RunProcesses(load_settings(), n_proxies=1)
    yield processes
    processes.stop()


async def preflight(processes: RunProcesses, api_base: str, log_file: Path) -> agl.Triplet:
    store = agl.LightningStoreServer(agl.InMemoryLightningStore(thread_safe=True), "127.0.0.1", free_port())
    await store.start()
    try:
        (address,) = await processes.start_proxies(
            StoreAddress(store.endpoint), [ServedModel("policy", api_base)], [log_file]
        )
        route = agl.ProxyLLM(endpoint=address, model="policy", api_key=processes.proxy_token)
        return await check_triplet(store, route, TokenIdAdapter(), deadline_s=1.0)
    finally:
        await store.stop()


@pytest.mark.slow
def test_a_server_that_returns_no_token_ids_is_named_as_the_cause(
    processes: RunProcesses, server_without_token_ids: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("http_proxy", f"http://127.0.0.1:{free_port()}")  # which is for servers of others
    with pytest.raises(PreflightError, match="no triplet with token ids") as caught:
        asyncio.run(preflight(processes, server_without_token_ids, tmp_path / "proxy.log"))
    assert "prompt_token_ids" in (caught.value.hint or "")


@pytest.mark.slow
def test_a_context_in_which_no_call_fits_is_named_with_its_setting(
    processes: RunProcesses, server_with_a_small_context: str, tmp_path: Path
) -> None:
    with pytest.raises(PreflightError, match="maximum context length is 10") as caught:
        asyncio.run(preflight(processes, server_with_a_small_context, tmp_path / "proxy.log"))
    assert "local.max_context" in (caught.value.hint or "")


@pytest.mark.slow
@pytest.mark.parametrize("with_token_ids", [True, False])
def test_the_key_of_a_policy_is_in_no_file_while_its_proxy_runs_and_after_it_was_killed(
    with_token_ids: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    app, keys = FastAPI(), list[str]()

    @app.post("/v1/chat/completions")
    async def complete(request: Request) -> dict[str, Any]:
        keys.append(request.headers["authorization"])
        choice = {"index": 0, "message": {"role": "assistant", "content": "hello"}, "finish_reason": "stop"}
        return {"id": "x", "object": "chat.completion", "created": 0, "model": "m", "choices": [choice]}

    server, folder = ServerThread(), tmp_path / "temporary"
    folder.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(folder))
    server.start(app)
    before = set(descendants(os.getpid()))
    processes = RunProcesses(load_settings(), n_proxies=1)

    async def ask() -> None:
        model = ServedModel("policy", server.base_url, api_key="secret-key", has_token_ids=with_token_ids)
        store, log = StoreAddress("http://127.0.0.1:9"), tmp_path / "proxy.log"
        (address,) = await processes.start_proxies(store, [model], [log])
        body = {"model": "policy", "messages": [{"role": "user", "content": "hello"}]}
        headers = {"Authorization": f"Bearer {processes.proxy_token}", "x-sequence-id": "1"}
        async with httpx.AsyncClient(trust_env=False, timeout=60) as client:
            path = "/rollout/r/attempt/a/v1/chat/completions"
            reply = await client.post(f"{address}{path}", json=body, headers=headers)
        assert reply.status_code == 200, reply.text

    def files() -> list[Path]:
        return [path for path in folder.rglob("*") if path.is_file()]

    try:
        asyncio.run(ask())
        assert keys == ["Bearer secret-key"]
        assert [path for path in files() if path.suffix == ".yaml"], "the file that a killed proxy leaves"
        for pid in set(descendants(os.getpid())) - before - {processes._supervisor.pid}:
            os.kill(pid, signal.SIGKILL)
        for secret in (b"secret-key", processes.proxy_token.encode()):
            assert not [path for path in files() if secret in path.read_bytes()]
    finally:
        processes.stop()
        server.stop()


@pytest.mark.slow
def test_a_model_that_is_down_is_named_as_the_cause_and_a_proxy_that_is_ended_is_replaced(
    processes: RunProcesses, tmp_path: Path
) -> None:
    started, before = time.monotonic(), set(descendants(os.getpid()))
    with pytest.raises(PreflightError, match="did not answer"):
        asyncio.run(preflight(processes, f"http://127.0.0.1:{free_port()}/v1", tmp_path / "proxy.log"))
    assert time.monotonic() - started < 60
    (proxy,) = set(descendants(os.getpid())) - before
    ended = asyncio.run(end_of(processes, proxy))
    assert ended == Ended("LLM proxy 0", proxy, "died with exit code 1", replaced=True)


async def end_of(processes: RunProcesses, pid: int) -> Ended:
    """Send SIGTERM to the process `pid`, and return what is reported."""
    seen: asyncio.Future[Ended] = asyncio.get_running_loop().create_future()
    processes.watch(seen.set_result)
    os.kill(pid, signal.SIGTERM)
    try:
        return await asyncio.wait_for(seen, timeout=20)
    finally:
        processes.unwatch()


def test_an_opentelemetry_that_loses_spans_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    check_opentelemetry()
    monkeypatch.setattr("sql_agent.rollouts.preflight.version", lambda name: "1.45.0")
    with pytest.raises(PreflightError, match="loses every span"):
        check_opentelemetry()
