"""Run scripts in processes forked from one that has imported what a training needs, which takes eight seconds a time.

Run as a program, this is that process: it takes orders as lines of JSON and answers each with one.
"""

from __future__ import annotations

import atexit
import functools
import json
import os
import runpy
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from importlib import import_module
from pathlib import Path
from typing import Any

from sql_agent.system.process import slow_imports

ROOT = Path(__file__).resolve().parents[2]
_IMPORTED = (
    "sql_agent.cli.train",
    "sql_agent.training.run",
    "sql_agent.training.local.policy_service",
    "sql_agent.training.local.trainer",
    "sql_agent.training.run",
    "sql_agent.training.verl.run_verl",
    "sql_agent.tasks.medical.medical_task",
    "transformers.models.auto.tokenization_auto",
    "transformers.models.llama.modeling_llama",
)


class PreparedProcess:
    """A running script, with what the tests use of `subprocess.Popen`.

    stdout and stderr go into the file `output`. `project` is the folder that the packages sql_agent and tests are in.
    """

    def __init__(
        self,
        script: str | Path,
        arguments: Sequence[str],
        environment: dict[str, str],
        output: str | Path = "",
        *,
        project: Path = ROOT,
    ) -> None:
        self._project = project
        if not output:
            descriptor, output = tempfile.mkstemp(prefix="output-of-a-script-")
            os.close(descriptor)
        self._output = Path(output).absolute()
        self._output.touch()
        order = {
            "command": [str(script), *arguments],
            "environment": environment,
            "folder": str(Path.cwd()),
            "output": str(self._output),
        }
        self.pid: int = _answered(order, project)
        self.returncode: int | None = None

    def poll(self) -> int | None:
        """Return the exit code, that of a signal negative; None while the script runs."""
        if self.returncode is None:
            self.returncode = _answered({"ended": self.pid}, self._project)
        return self.returncode

    def wait(self, timeout: float | None = None) -> int:
        """Wait for the end and return the exit code. Raises subprocess.TimeoutExpired."""
        deadline = time.monotonic() + (timeout or float("inf"))
        while (code := self.poll()) is None:
            if time.monotonic() > deadline:
                raise subprocess.TimeoutExpired("a script", timeout or 0)
            time.sleep(0.05)
        return code

    def communicate(self, timeout: float | None = None) -> tuple[str, None]:
        """Wait for the end and return what was printed, errors included. Raises subprocess.TimeoutExpired."""
        self.wait(timeout)
        return self.printed(), None

    def printed(self) -> str:
        """Return what was printed so far, errors included."""
        return self._output.read_text(encoding="utf-8")

    def send_signal(self, number: signal.Signals) -> None:
        """Send a signal to the script unless it has ended."""
        if self.poll() is None:
            os.kill(self.pid, number)

    def terminate(self) -> None:
        """Send SIGTERM to the script unless it has ended."""
        self.send_signal(signal.SIGTERM)

    def kill(self) -> None:
        """Send SIGKILL to the script unless it has ended."""
        self.send_signal(signal.SIGKILL)


@functools.cache
def _server(project: Path) -> subprocess.Popen[str]:
    server = subprocess.Popen(
        [sys.executable, "-m", "tests.support.prepared_python"],
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, cwd=project, start_new_session=True,
    )  # fmt: skip
    atexit.register(server.communicate)  # which closes its input, and so ends it
    return server


def _answered(order: dict[str, Any], project: Path) -> Any:
    if _server(project).poll() is not None:  # a test may have ended it together with the children of a script
        _server.cache_clear()
    server = _server(project)
    assert server.stdin is not None and server.stdout is not None
    server.stdin.write(json.dumps(order) + "\n")
    server.stdin.flush()
    return json.loads(server.stdout.readline())


def _serve() -> dict[str, Any] | None:
    """Carry out orders until the input ends; return an order in the child that is to carry it out."""
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # what an import prints is no answer
    with slow_imports():
        for name in _IMPORTED:
            import_module(name)
    for line in iter(sys.stdin.readline, ""):
        order: dict[str, Any] = json.loads(line)
        answer: int | None
        if "ended" in order:
            pid, status = os.waitpid(order["ended"], os.WNOHANG)
            answer = os.waitstatus_to_exitcode(status) if pid else None
        else:
            answer = os.fork()
            if answer == 0:
                os.close(answers.fileno())
                return order
        answers.write(json.dumps(answer) + "\n")
        answers.flush()
    return None


def _become(order: dict[str, Any]) -> None:
    """Run a script as a new Python would, to its end and beyond: the interpreter ends as it does after any script."""
    os.setsid()
    os.chdir(order["folder"])
    os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
    output = os.open(order["output"], os.O_WRONLY | os.O_TRUNC)
    os.dup2(output, 1)
    os.dup2(output, 2)
    os.close(output)
    os.environ.clear()
    os.environ.update(order["environment"])
    sys.argv = order["command"]
    sys.orig_argv = [sys.executable, *sys.argv]  # with which a program can start itself again
    sys.path[0] = str(Path(sys.argv[0]).parent)
    runpy.run_path(sys.argv[0], run_name="__main__")


if __name__ == "__main__" and (ordered := _serve()) is not None:
    _become(ordered)
