"""The servers of a run answer nobody who has not its token, and a store with a token only those who have it too."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from sql_agent.errors import ConfigError
from sql_agent.rollouts.run_role import HEALTH_PATH, StoreAddress, check_store
from tests.support.processes import ROOT, SCRIPT, family_and_ports, finish, lines, served_store, start, wait_for
from tests.support.tiny_training import tiny_training

HEALTH = {HEALTH_PATH, "/health/liveliness"}
ASKED = {
    "GET": ["/", "/docs", "/v1/models", "/model/info", "/v1/agl/resources/latest", "/v1/agl/workers", *sorted(HEALTH)],
    "POST": ["/v1/chat/completions", "/rollout/r/attempt/a/v1/chat/completions", "/v1/agl/report", "/v1/traces",
             "/v1/agl/queues/rollouts/enqueue", "/rollouts", "/endpoints"],
}  # fmt: skip
FAKE_VERL = ROOT / "tests" / "support" / "train_with_fake_verl.py"


def answered(port: int, headers: dict[str, str]) -> dict[str, int]:
    """Return the status of each path that the server at `port` answers without 401."""
    found = {}
    with httpx.Client(base_url=f"http://127.0.0.1:{port}", headers=headers, trust_env=False, timeout=30) as client:
        for method, paths in ASKED.items():
            for path in paths:
                status = client.request(method, path, content=b"{}" if method == "POST" else None).status_code
                if status != httpx.codes.UNAUTHORIZED:
                    found[path] = status
    return found


@pytest.mark.slow
@pytest.mark.parametrize(("backend", "servers"), [("local", 3), ("verl", 5)])
def test_no_server_of_a_run_answers_without_its_token(
    backend: str, servers: int, tmp_path: Path, tiny_model_folder: Path
) -> None:
    arguments = [*tiny_training(tmp_path, tiny_model_folder), f"--backend={backend}", "train.steps=500"]
    if backend == "verl":
        arguments += [
            "runner.n_proxies=1",
            "verl.config.sql_agent.endpoints=2",
            "verl.gpu_memory_gb=24",
            "data.natural_questions=0",
        ]
    process = start(arguments, script=FAKE_VERL if backend == "verl" else SCRIPT)
    wait_for(lambda: len(lines(tmp_path / "runs" / "r" / "metrics.jsonl")) >= 1, process)
    _, ports = family_and_ports(process)
    assert len(ports) == servers, "store, proxy and policy; with verl its rollout server and two endpoints"
    for headers in ({}, {"Authorization": "Bearer unused"}, {"Authorization": "Basic dW51c2VkOg=="}):
        for port in ports:
            assert set(answered(port, headers)) <= HEALTH
    assert process.poll() is None
    process.send_signal(signal.SIGINT)
    output = finish(process)
    assert process.returncode == 130, output
    assert "Traceback" not in output


@pytest.fixture
def store(monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """The address of `sql-agent store` with the token `only-ours`, which this process has too."""
    monkeypatch.setenv("STORE_TOKEN", "only-ours")
    with served_store(program="sql-agent") as (_, address):
        yield address


@pytest.mark.slow
def test_a_store_with_a_token_serves_those_who_have_it_and_tells_others_what_to_set(
    store: str, tmp_path: Path, tiny_model_folder: Path
) -> None:
    arguments = [*tiny_training(tmp_path, tiny_model_folder), f"--external-store-address={store}", "train.steps=2"]
    for given, wanted in (("", "missing"), ("guessed", "wrong")):
        token = given or None
        with pytest.raises(ConfigError, match=f"the token for the store at {store} is {wanted}") as refused:
            check_store(StoreAddress(store, token))
        assert "STORE_TOKEN" in (refused.value.hint or "")
        stranger = start(arguments, AGL_MANAGED_STORE="0", STORE_TOKEN=given)
        output = finish(stranger)
        assert stranger.returncode == 2 and f"is {wanted}" in output and "Traceback" not in output
    port = int(store.rpartition(":")[2])
    assert set(answered(port, {})) == {HEALTH_PATH}
    run = start(arguments, AGL_MANAGED_STORE="0", AGL_CURRENT_ROLE="algorithm")
    runner = start(
        [f"--external-store-address={store}", "--n-runners=1"], AGL_MANAGED_STORE="0", AGL_CURRENT_ROLE="runner"
    )
    printed = finish(run)
    assert run.returncode == 0, printed
    printed += finish(runner)
    assert runner.returncode == 0, printed
    assert [step["rollouts/kept"] for step in lines(tmp_path / "runs" / "r" / "metrics.jsonl")] == [4, 4]
    files = [path for path in (tmp_path / "runs").rglob("*") if path.is_file()]
    assert len(files) > 5
    assert not [path for path in files if b"only-ours" in path.read_bytes()] and "only-ours" not in printed


def serve(*arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    command: list[Any] = [sys.executable, "-m", "sql_agent", "store", *arguments]
    return subprocess.run(
        command, capture_output=True, text=True, check=False, timeout=120, cwd=ROOT, env=os.environ | environment
    )


def test_a_store_that_other_hosts_can_reach_does_not_start_without_a_token_unless_told() -> None:
    refused = serve("--host", "0.0.0.0", STORE_TOKEN="")
    assert refused.returncode == 2
    assert refused.stderr.splitlines()[0].endswith(
        "other hosts could use the store at 0.0.0.0, because it has no token"
    )
    assert "STORE_TOKEN" in refused.stderr and "--no-token" in refused.stderr
    # Told so, it gets as far as the address, which is none of this machine.
    told = serve("--host", "192.0.2.1", "--no-token", STORE_TOKEN="")
    assert told.returncode == 2 and "cannot listen at 192.0.2.1" in told.stderr
