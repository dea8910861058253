"""Programs that run in forks of a warm server behave like `python`, and run without the server too."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from sql_agent.training.verl import warm_python

SERVER = """
import sys
from pathlib import Path
from sql_agent.training.verl.warm_python import serve
serve(Path(sys.argv[1]), map(__import__, ["colorsys"]))()
"""
ENVIRONMENT = os.environ | {"PYTHONPATH": str(Path(__file__).parents[3])}
IS_WARM = "import sys; print('colorsys' in sys.modules, end=''); "


ONE_ID = """
import sys
from pathlib import Path
from types import SimpleNamespace
from sql_agent.training.verl.warm_python import serve
def imports():
    yield "no module"
    ids = SimpleNamespace(from_int=int, of=lambda job: b"the same in all forks")
    sys.modules["ray"] = SimpleNamespace(JobID=ids, PlacementGroupID=ids)
serve(Path(sys.argv[1]), imports())()
"""

SLOW = """
import sys, time
from pathlib import Path
from sql_agent.training.verl.warm_python import serve
def imports():
    import base64
    while not Path(sys.argv[1], "go").exists():
        time.sleep(0.01)
        yield
    import colorsys
    yield
serve(Path(sys.argv[1]), imports())()
"""


@pytest.fixture
def client(tmp_path: Path) -> Path:
    """Like the one that `warm_server` makes."""
    path = tmp_path / "python"
    path.write_text(f'#!/bin/sh\nexec "{sys.executable}" -IS "{warm_python.__file__}" "{tmp_path}" "$@"\n')
    path.chmod(0o700)
    (tmp_path / "log").write_text("an import\nfailed\n")
    return path


@pytest.fixture
def server(client: Path) -> Iterator[subprocess.Popen[bytes]]:
    process = subprocess.Popen([sys.executable, "-c", SERVER, str(client.parent)], env=ENVIRONMENT)
    while not (client.parent / "socket").exists():
        time.sleep(0.01)
    yield process
    process.kill()
    process.wait()


def run(client: Path, *arguments: str, **options: object) -> subprocess.CompletedProcess[str]:
    return subprocess.run([client, *arguments], text=True, capture_output=True, timeout=60, check=False, **options)  # type: ignore[call-overload,no-any-return]


@pytest.mark.usefixtures("server")
def test_a_program_has_its_own_environment_folder_files_arguments_and_exit_code(client: Path, tmp_path: Path) -> None:
    script = tmp_path / "script.py"
    script.write_text(
        "import os, sys\nprint(__name__, __file__, os.getcwd(), os.environ['X'], sys.argv[1:], sys.path[0])\n"
    )
    ended = run(client, "-u", str(script), "a", "b", env=ENVIRONMENT | {"X": "1"}, cwd="/")
    assert ended.stdout == f"__main__ {script} / 1 ['a', 'b'] {tmp_path}\n", ended.stderr
    ended = run(client, "-c", IS_WARM + "sys.stderr.write(sys.stdin.read()); sys.exit(7)", input="given")
    assert (ended.stdout, ended.stderr, ended.returncode) == ("True", "given", 7)
    ended = run(client, "-m", "base64", "-e", input="x")
    assert ended.stdout == "eA==\n", ended.stderr
    ended = run(client, "-c", "import os, signal; os.kill(os.getpid(), signal.SIGTERM)")
    assert ended.returncode == -signal.SIGTERM


@pytest.mark.usefixtures("server")
def test_what_multiprocessing_starts_in_a_program_is_warm_too_and_has_no_key_of_vllm(
    client: Path, tmp_path: Path
) -> None:
    script = tmp_path / "script.py"
    script.write_text(
        "import multiprocessing, os, sys\n"
        "def job(queue): queue.put(('colorsys' in sys.modules, os.environ.get('VLLM_API_KEY'), os.getppid()))\n"
        "if __name__ == '__main__':\n"
        "    context = multiprocessing.get_context('spawn')\n"
        "    queue = context.Queue()\n"
        "    process = context.Process(target=job, args=(queue,))\n"
        "    process.start()\n"
        "    print(*queue.get(), os.getppid())\n"
        "    process.join()\n"
        "    print(process.exitcode)\n"
    )
    ended = run(client, str(script), env=ENVIRONMENT | {"VLLM_API_KEY": "k"})
    warm, key, of_job, of_script, code = ended.stdout.split()
    assert (warm, key, code) == ("True", "None", "0") and of_job == of_script, "both are forks of the server"


@pytest.mark.parametrize("killed", ["client", "server"])
def test_a_program_ends_with_its_client_and_with_the_server(
    client: Path, server: subprocess.Popen[bytes], killed: str
) -> None:
    code = "import os, time; print(os.getpid(), flush=True); time.sleep(60)"
    with subprocess.Popen([client, "-c", code], stdout=subprocess.PIPE, text=True) as started:
        assert started.stdout is not None
        program = psutil.Process(int(started.stdout.readline()))
        assert program.ppid() == server.pid
        (started if killed == "client" else server).kill()
        psutil.wait_procs([program], timeout=10)
        assert not program.is_running()
        assert started.wait(10) == -signal.SIGKILL


def test_without_a_server_and_with_options_that_a_fork_cannot_have_python_starts_as_ever(
    client: Path, request: pytest.FixtureRequest
) -> None:
    ended = run(client, "-c", IS_WARM)
    assert ended.stdout == "False" and "the server's last line: failed" in ended.stderr
    request.getfixturevalue("server")
    assert run(client, "-c", IS_WARM).stdout == "True"
    assert run(client, "-O", "-c", IS_WARM).stdout == "False"
    assert run(client, "-c", IS_WARM, env=ENVIRONMENT | {"RAY_JOB_ID": "02000000"}).stdout == "False"


def test_a_request_whose_client_has_ended_is_not_run(client: Path, tmp_path: Path) -> None:
    slow = SERVER.replace("map(__import__", "map(lambda name: __import__('time').sleep(1) or __import__(name)")
    command = [sys.executable, "-c", slow, str(tmp_path)]
    with subprocess.Popen(command, env=ENVIRONMENT) as server:
        while not (tmp_path / "socket").exists():
            time.sleep(0.01)
        with socket.socket(socket.AF_UNIX) as asked:
            asked.connect(str(tmp_path / "socket"))
            socket.send_fds(asked, [b"\0"], [0])
            request = {"command": ["-c", "open('ran', 'w')"], "environment": {}, "folder": str(tmp_path), "files": [0]}
            asked.sendall(json.dumps(request).encode() + b"\n")
        assert run(client, "-c", IS_WARM).stdout == "True"
        server.terminate()
    assert not (tmp_path / "ran").exists()


def test_a_program_that_is_imported_does_not_wait_for_the_other_imports(client: Path, tmp_path: Path) -> None:
    with subprocess.Popen([sys.executable, "-c", SLOW, str(tmp_path)], env=ENVIRONMENT) as server:
        while not (tmp_path / "socket").exists():
            time.sleep(0.01)
        with subprocess.Popen([client, "-c", IS_WARM], stdout=subprocess.PIPE, text=True) as waiting:
            assert run(client, "-m", "base64", "-e", input="x").stdout == "eA==\n"
            assert waiting.poll() is None
            (tmp_path / "go").touch()
            assert waiting.communicate(timeout=60)[0] == "True"
        server.terminate()


@pytest.mark.parametrize("end", ["an import fails", "SIGTERM"])
def test_a_program_outlives_imports_that_fail_or_are_ended(client: Path, tmp_path: Path, end: str) -> None:
    command = [sys.executable, "-c", SLOW.replace("colorsys", "no_such_module"), str(tmp_path)]
    with subprocess.Popen(command, env=ENVIRONMENT, stderr=subprocess.PIPE, text=True) as server:
        while not (tmp_path / "socket").exists():
            time.sleep(0.01)
        with (
            subprocess.Popen(
                [client, "-m", "base64"], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
            ) as program,
            subprocess.Popen(
                [client, "-c", IS_WARM], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
            ) as other,
        ):
            while len(psutil.Process(server.pid).children()) != 1:
                time.sleep(0.01)
            if end == "SIGTERM":
                server.terminate()
            (tmp_path / "go").touch()
            assert other.communicate(timeout=60)[0] == "False", "it imports by itself"
            assert program.communicate("x", timeout=60)[0] == "eA==\n" and program.returncode == 0
        assert "an import failed: ModuleNotFoundError" in server.communicate(timeout=60)[1] and server.returncode == 1


def test_a_server_whose_forks_would_draw_the_same_ids_of_ray_ends(client: Path) -> None:
    command = [sys.executable, "-c", ONE_ID, str(client.parent)]
    ended = subprocess.run(command, env=ENVIRONMENT, text=True, capture_output=True, timeout=60, check=False)
    assert ended.returncode == 1 and "an import has drawn ids of Ray" in ended.stderr


def test_a_server_that_shall_end_waits_for_its_programs(client: Path, server: subprocess.Popen[bytes]) -> None:
    code = "import sys; print('ready', flush=True); sys.stdin.read(); print('saved')"
    with subprocess.Popen([client, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as started:
        assert started.stdout is not None and started.stdout.readline() == "ready\n"
        server.terminate()
        with pytest.raises(subprocess.TimeoutExpired):
            server.wait(0.5)
        assert started.communicate()[0] == "saved\n" and started.returncode == 0
    assert server.wait(10) == 0
