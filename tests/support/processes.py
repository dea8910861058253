"""Run commands, and start, watch and end training processes in tests."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import psutil
import pytest

from sql_agent.system.servers import bind
from tests.support.prepared_python import PreparedProcess
from tests.support.process_tree import until

ROOT = Path(__file__).resolve().parents[2]
MAIN = ROOT / "sql_agent" / "__main__.py"
SCRIPT = ROOT / "sql_agent" / "train_sql_agent.py"
Process = subprocess.Popen[str] | PreparedProcess


def free_port() -> int:
    with bind() as sock:
        port: int = sock.getsockname()[1]
        return port


def run_command(*command: object, **environment: str) -> subprocess.CompletedProcess[str]:
    """Run `command` to its end, with the programs of this Python's environment first in its PATH."""
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    return subprocess.run(
        [str(part) for part in command],
        capture_output=True, text=True, check=False, timeout=300, env=os.environ | {"PATH": path} | environment,
    )  # fmt: skip


def start(
    arguments: Sequence[str], *, script: str | Path = SCRIPT, output: str | Path = "", **environment: str
) -> PreparedProcess:
    """Start a script in a process that has imported what a training needs; what it prints goes into a file."""
    return PreparedProcess(script, arguments, os.environ | environment, output)


def start_new(arguments: list[str], *, script: Path = SCRIPT, **environment: str) -> subprocess.Popen[str]:
    """Start a script as a user does, with a pipe that can be read while it runs."""
    return subprocess.Popen(
        [sys.executable, str(script), *arguments],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        env=os.environ | environment,
        start_new_session=True,
    )


def run_script(script: str | Path, *arguments: str, **environment: str) -> tuple[int, str]:
    """Run a script as `start` does, to its end; returns its exit code and what it printed."""
    process = start(arguments, script=script, **environment)
    output = finish(process, timeout=600)
    assert process.returncode is not None
    return process.returncode, output


def finish(process: Process, *, timeout: float = 300) -> str:
    try:
        output, _ = process.communicate(timeout=timeout)
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGKILL)
        pytest.fail(f"did not end in {timeout} s; it had printed:\n{process.communicate()[0]}")
    return output


def lines(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()] if path.exists() else []


def wait_for(condition: Callable[[], bool], process: Process, *, timeout: float = 240) -> None:
    deadline = time.monotonic() + timeout
    while not condition():
        if process.poll() is not None or time.monotonic() > deadline:
            pytest.fail(f"waited in vain; exit code {process.poll()}, output:\n{finish(process, timeout=5)}")
        time.sleep(0.1)


def stop(process: Process, number: signal.Signals, run: Path) -> str:
    """Send a signal once the process has trained two steps of its own; none of its family may outlive it."""
    before = len(lines(run / "metrics.jsonl"))
    wait_for(lambda: len(lines(run / "metrics.jsonl")) >= before + 2, process)
    family, ports = family_and_ports(process)
    assert ports
    process.send_signal(number)
    output = finish(process, timeout=60)
    assert_nothing_left(family, ports)
    return output


def assert_nothing_left(family: list[psutil.Process], ports: set[int]) -> None:
    # A dead process whose parent died too may stay a zombie for seconds, until the system's first process notices.
    until(lambda: not any(map(_runs, family)), 15)
    assert not (alive := list(filter(_runs, family))), f"left behind: {[(p.pid, p.cmdline()) for p in alive]}"
    for port in ports:
        with socket.socket() as probe:
            assert probe.connect_ex(("127.0.0.1", port)) != 0, f"port {port} still answers"


def _runs(process: psutil.Process) -> bool:
    with contextlib.suppress(psutil.NoSuchProcess):
        return bool(process.is_running() and process.status() != psutil.STATUS_ZOMBIE)
    return False


def family_and_ports(process: Process) -> tuple[list[psutil.Process], set[int]]:
    root = psutil.Process(process.pid)
    family = [root, *root.children(recursive=True)]
    ports = {c.laddr.port for p in family for c in p.net_connections("inet") if c.status == psutil.CONN_LISTEN}
    return family, ports


def runners_and_proxies(process: Process) -> tuple[list[psutil.Process], list[psutil.Process]]:
    """Return the runner and the proxy processes of a run; a proxy is recognised by the file of its output."""
    root = psutil.Process(process.pid)
    supervisors = [child for child in root.children() if child.cmdline() == root.cmdline()]
    children = [child for supervisor in supervisors for child in supervisor.children()]
    proxies = [child for child in children if Path(f"/proc/{child.pid}/fd/1").readlink().name.startswith("proxy")]
    return [child for child in children if child not in proxies], proxies


@contextmanager
def served_store(port: int = 0, *, program: str = "agl") -> Iterator[tuple[PreparedProcess, str]]:
    """Serve a store as users do, with `agl store` or `sql-agent store`, inside the context.

    Yields its process and its address; port 0 is any free one.
    """
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        probe.bind(("127.0.0.1", port))
        port = probe.getsockname()[1]
    script = Path(sys.executable).with_name("agl") if program == "agl" else MAIN
    server = start(["store", "--host", "127.0.0.1", "--port", str(port)], script=script)
    try:
        deadline = time.monotonic() + 120
        with socket.socket() as client:
            while client.connect_ex(("127.0.0.1", port)) != 0:
                assert time.monotonic() < deadline, f"{program} store did not start"
                time.sleep(0.05)
        yield server, f"http://127.0.0.1:{port}"
    finally:
        server.terminate()
        server.wait(timeout=20)
