"""Run Python programs in forks of a process that has imported verl and vLLM: importing them takes 20 s in each process.

`python -m sql_agent.training.verl.warm_python FOLDER` is the server: it imports the modules, and forks for each client.
FOLDER/python is the client. It does what `python ARGUMENTS` does, in a fork of the server: with its own environment,
working directory and open files, and with the program's exit code. If the server does not answer, the client becomes
`python ARGUMENTS` itself. Ray starts its workers with the client, and multiprocessing its processes.
"""

from __future__ import annotations

import ctypes
import fcntl
import gc
import importlib
import importlib.util
import json
import multiprocessing
import os
import select
import signal
import socket
import sys
import time
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ProcessPoolExecutor
from contextlib import contextmanager, nullcontext, suppress
from functools import partial
from importlib.machinery import SourceFileLoader
from itertools import dropwhile
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any, NamedTuple

PYTHON_VARIABLE = "SQLAGENT_PYTHON"  # the path of the client
_MODULES = (
    "ray._private.workers.default_worker",
    "sql_agent.training.verl.verl_main",
    "verl.trainer.main_ppo",
    "verl.trainer.ppo.v1",
    "sql_agent.training.verl.agent_loop",
    "sql_agent.training.verl.workers",
    "verl.workers.rollout.vllm_rollout.vllm_async_server",
    "verl.workers.rollout.vllm_rollout.utils",
    "vllm.v1.engine.core",
    "vllm.v1.worker.gpu_worker",
)
_SOCKET, _LOG = "socket", "log"
_READY_S = 120.0  # time limit for the imports of the server
_POLL_MS = 50
_GRACE_S = 20.0
_FIRST_JOB = "01000000"  # Ray's id of the first job of a cluster
_PR_SET_PDEATHSIG = 1
_HARMLESS = ("-u", "-B")  # options of python that a fork may ignore
_FORWARDED = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGUSR1, signal.SIGUSR2)


def run(folder: str, arguments: list[str]) -> None:
    """Do what `python ARGUMENTS` does, in a fork of the server of `folder` if the server answers. Does not return."""
    files = [number for each in Path("/proc/self/fd").iterdir() if _is_open(number := int(each.name))]
    command = list(dropwhile(_HARMLESS.__contains__, arguments))
    request = {"command": command, "environment": dict(os.environ), "folder": str(Path.cwd()), "files": files}
    try:
        _check(command)
        server = socket.socket(socket.AF_UNIX)
        server.settimeout(_READY_S)
        server.connect(f"{folder}/{_SOCKET}")
        socket.send_fds(server, [b"\0"], files)  # the kernel refuses more than 253
        server.sendall(json.dumps(request).encode() + b"\n")
        replies = server.makefile("r")
        child = int(replies.readline())  # an empty line if the server has ended
    except (OSError, ValueError) as error:
        said = Path(folder, _LOG).read_text(errors="replace").strip().rpartition("\n")[2]
        print(f"verl is imported anew: {error}; the server's last line: {said}", file=sys.stderr, flush=True)
        os.execv(sys.executable, [sys.executable, *arguments])  # noqa: S606
    for forwarded in _FORWARDED:
        signal.signal(forwarded, lambda given, _: _send(child, given))
    server.settimeout(None)
    for number in set(files) - {0, 1, 2}:  # when the program closes a pipe, its reader must see the end
        os.close(number)
    code = int(replies.readline() or -signal.SIGKILL)
    if code >= 0:
        os._exit(code)
    with suppress(OSError):  # SIGKILL has no handler
        signal.signal(-code, signal.SIG_DFL)
    os.kill(os.getpid(), -code)


@contextmanager
def warm_server() -> Iterator[None]:
    """Run the server inside the context, and name the client in PYTHON_VARIABLE, unless SQLAGENT_WARM is 0.

    A Ray cluster that is already running cannot use the client, so then there is no server.
    """
    # Imported here, because the client runs without site-packages and must start fast.
    import subprocess  # noqa: PLC0415
    import tempfile  # noqa: PLC0415

    from sql_agent.training.verl.config import verl_environment  # noqa: PLC0415

    if os.environ.get("SQLAGENT_WARM") == "0" or "RAY_ADDRESS" in os.environ:
        yield
        return
    with tempfile.TemporaryDirectory(prefix="sql-agent-") as folder:
        client = Path(folder) / "python"
        client.write_text(f'#!/bin/sh\nexec "{sys.executable}" -IS "{__file__}" "{folder}" "$@"\n', "utf-8")
        client.chmod(0o700)
        with (Path(folder) / _LOG).open("ab") as log:
            server = subprocess.Popen(  # noqa: S603
                [sys.executable, "-m", "sql_agent.training.verl.warm_python", folder],
                env=os.environ | verl_environment(), stdout=log, stderr=log,
                start_new_session=True,
            )  # fmt: skip
        os.environ[PYTHON_VARIABLE] = str(client)
        try:
            yield
        finally:
            del os.environ[PYTHON_VARIABLE]
            server.kill()
            server.wait()


def serve(folder: Path, imports: Iterable[object]) -> Callable[[], None]:
    """Fork for each client of `folder`; return, in the fork, the program to run.

    Clients wait until `imports` has imported all modules, one at each step. Only a client whose program is one of these
    modules, as verl's driver is, gets its fork earlier. If forks would fail, the server takes no more clients, and ends
    with its last fork. After SIGTERM it ends so too, but after 20 s it kills all forks.
    """
    listener = socket.socket(socket.AF_UNIX)
    listener.bind(str(folder / _SOCKET))
    listener.listen(128)
    deadlines: list[float] = []
    signal.signal(signal.SIGTERM, lambda *_: deadlines.append(time.monotonic() + _GRACE_S))
    python, sys.executable = sys.executable, str(folder / "python")
    multiprocessing.set_executable(sys.executable)
    forks = _Forks(listener)

    def program(client: _Client) -> Callable[[], None]:
        sys.executable = python  # only imports need the client: vLLM starts a program to inspect the model's class
        gc.freeze()  # otherwise a garbage collection in a fork would copy the memory of all modules
        gc.enable()
        return partial(_program, client.request, client.files)

    gc.disable()  # collections take an eighth of the time of the imports
    trouble = ""
    try:
        for _ in imports:
            forks.poll(0)
            if client := forks.fork(_is_imported):
                return program(client)
    except Exception as error:  # the server goes on, because its end would kill the programs that run already
        trouble = f"an import failed: {error!r}"
    gc.collect()
    if not trouble and not _in_fork(_cuda_starts):
        trouble = "an import has started CUDA, so forks cannot use the GPU"
    if not trouble and "ray" in sys.modules and _in_fork(_ray_id) == _in_fork(_ray_id):
        trouble = "an import has drawn ids of Ray, so forks would draw the same ones"
    if trouble:
        print(f"{trouble}; each process imports by itself", file=sys.stderr, flush=True)
        forks.refuse()
    while forks or not (deadlines or trouble):
        if client := forks.fork(lambda _: True):
            return program(client)
        forks.poll(_POLL_MS)
        if deadlines and time.monotonic() > deadlines[0]:
            break
    os._exit(1 if trouble else 0)


class _Client(NamedTuple):
    """A client that asks for a fork, its request, and the descriptors here of the files request["files"]."""

    connection: socket.socket
    request: dict[str, Any]
    files: list[int]

    def close(self) -> None:
        self.connection.close()
        for file in self.files:
            os.close(file)


class _Forks:
    """The forks of a server that listens at `listener`. An instance is true while a fork runs."""

    def __init__(self, listener: socket.socket) -> None:
        self._asking: list[_Client] = []  # clients without a fork
        self._listener = listener
        self._waiting = select.poll()
        self._waiting.register(listener, select.POLLIN)
        self._clients: dict[int, tuple[int, socket.socket]] = {}  # {descriptor: (fork, connection)}

    def __bool__(self) -> bool:
        return bool(self._clients)

    def poll(self, milliseconds: int) -> None:
        """Wait for an event: a client that asks, a killed client, whose fork is killed, or an ended fork."""
        for number, _ in self._waiting.poll(milliseconds):
            if number == self._listener.fileno():
                if client := _accepted(self._listener):
                    self._asking.append(client)
            else:
                _send(self._clients[number][0], signal.SIGKILL)
                _send(-self._clients[number][0], signal.SIGKILL)
                self._waiting.unregister(number)
        self._reap()

    def fork(self, may_run: Callable[[_Client], bool]) -> _Client | None:
        """Fork for each client that has no fork and `may_run`. Return the client in its fork, None in the server."""
        for client in list(filter(may_run, self._asking)):
            self._asking.remove(client)
            child = os.fork()
            if child == 0:
                os.setsid()
                signal.signal(signal.SIGTERM, signal.SIG_DFL)
                for _, connection in self._clients.values():
                    connection.close()
                for other in self._asking:
                    other.close()
                self._listener.close()
                client.connection.close()
                return client
            for file in client.files:
                os.close(file)
            self._clients[client.connection.fileno()] = child, client.connection
            self._waiting.register(client.connection, select.POLLHUP)
            with suppress(OSError):
                client.connection.sendall(f"{child}\n".encode())
        return None

    def refuse(self) -> None:
        """Take no more clients. Clients without a fork become python themselves."""
        self._waiting.unregister(self._listener)
        self._listener.close()
        for client in self._asking:
            client.close()
        self._asking.clear()

    def _reap(self) -> None:
        """Send the exit code of each ended fork to its client, and forget the client."""
        for number, (child, client) in list(self._clients.items()):
            ended, status = os.waitpid(child, os.WNOHANG)
            if ended:
                with suppress(KeyError):
                    self._waiting.unregister(number)
                with suppress(OSError):
                    client.sendall(f"{os.waitstatus_to_exitcode(status)}\n".encode())
                client.close()
                del self._clients[number]


def import_verl() -> Iterator[None]:
    """Import what verl's processes import, a module at each step.

    The imports do not start CUDA, because a fork cannot use CUDA that its parent started.
    """
    os.environ |= {
        "PYTORCH_NVML_BASED_CUDA_CHECK": "1",
        "OMP_NUM_THREADS": "1",  # the number that Ray gives its workers
        "VLLM_LOGGING_LEVEL": os.environ.get("VLLM_LOGGING_LEVEL", "WARN"),  # verl's default
        # Ray reads these two during its import only. A worker ends when the process RAY_RAYLET_PID has ended.
        "RAY_JOB_ID": _FIRST_JOB,
        "RAY_RAYLET_PID": str(os.getppid()),
    }
    torch, triton = importlib.import_module("torch"), importlib.import_module("triton")
    gpu = _in_fork(_gpu) if torch.cuda.is_available() else None
    with (
        _ray_undrawn(importlib.import_module("ray.actor")),
        _asked_before(torch.cuda, triton.runtime.driver, gpu) if gpu else nullcontext(),
    ):
        for name in _MODULES:
            importlib.import_module(name)
            yield


class _Gpu(NamedTuple):
    """The properties of the GPU that imported modules ask for."""

    capability: tuple[int, int]
    name: str
    target: Any
    properties: dict[str, int]


def _gpu() -> _Gpu:
    cuda, driver = sys.modules["torch"].cuda, sys.modules["triton"].runtime.driver.active
    asked = cuda.get_device_capability(), cuda.get_device_name()  # first, because torch starts CUDA and triton does not
    return _Gpu(*asked, driver.get_current_target(), driver.utils.get_device_properties(0))


@contextmanager
def _asked_before(cuda: Any, driver: Any, gpu: _Gpu) -> Iterator[None]:
    """Let torch's `cuda` and triton's `driver` answer with `gpu` inside the context, because asking CUDA starts it."""
    kept = cuda.get_device_capability, cuda.get_device_name
    cuda.get_device_capability, cuda.get_device_name = lambda *_: gpu.capability, lambda *_: gpu.name
    utils = SimpleNamespace(get_device_properties=lambda _: gpu.properties)
    driver.set_active(SimpleNamespace(utils=utils, get_current_target=lambda: gpu.target))
    try:
        yield
    finally:
        cuda.get_device_capability, cuda.get_device_name = kept
        driver.set_active(None)  # triton makes its own one again


@contextmanager
def _ray_undrawn(actor: Any) -> Iterator[None]:
    """Let `ray.remote` give classes ids from the operating system inside the context.

    Ray's generator of random ids would be seeded by the first class, and all forks would draw the same ids of tasks.
    """
    kept = actor.ActorClassID
    actor.ActorClassID = SimpleNamespace(from_random=lambda: kept(os.urandom(kept.size())))
    try:
        yield
    finally:
        actor.ActorClassID = kept


def _in_fork(function: Callable[[], Any]) -> Any:
    """Call `function`, which may start CUDA, in a fork, and return its result."""
    with ProcessPoolExecutor(1, multiprocessing.get_context("fork")) as pool:
        return pool.submit(function).result()


def _cuda_starts() -> bool:
    try:
        cuda = ctypes.CDLL("libcuda.so.1")
    except OSError:  # without a GPU nothing needs CUDA
        return True
    torch = sys.modules.get("torch")
    return not (torch and torch.cuda._is_in_bad_fork()) and cuda.cuInit(0) == 0


def _ray_id() -> str:
    ray = sys.modules["ray"]
    return str(ray.PlacementGroupID.of(ray.JobID.from_int(1)).hex())


def _accepted(listener: socket.socket) -> _Client | None:
    """Return the client that asks next, or None if the client has ended or has become `python` itself."""
    connection, files = listener.accept()[0], list[int]()
    with suppress(OSError, ValueError):
        _, files, _, _ = socket.recv_fds(connection, 1, 253)
        request = json.loads(connection.makefile("r").readline())
        hung_up = select.poll()
        hung_up.register(connection, select.POLLHUP)
        if not hung_up.poll(0):
            return _Client(connection, request, files)
    _Client(connection, {}, files).close()
    return None


def _is_imported(client: _Client) -> bool:
    command = client.request["command"]
    return command[0] == "-m" and not sys.modules.keys().isdisjoint(command[1:2])


def _program(request: dict[str, Any], files: list[int]) -> None:
    """Take on the environment, the folder and the open files of a client, and run its program."""
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
    os.chdir(request["folder"])
    os.environ.clear()
    os.environ.update(request["environment"])
    if "--multiprocessing-fork" in request["command"]:
        os.environ.pop("VLLM_API_KEY", None)  # see plugin.py
    above = max(request["files"]) + 1
    moved = [fcntl.fcntl(file, fcntl.F_DUPFD_CLOEXEC, above) for file in files]
    for file in files:
        os.close(file)
    for number, file in zip(request["files"], moved, strict=True):
        os.dup2(file, number)
        os.close(file)
    if numpy := sys.modules.get("numpy"):
        numpy.random.seed()  # otherwise all forks would draw the same numbers
    if ray := sys.modules.get("ray._raylet"):
        ray.Config.initialize("")  # otherwise the values would be those of the server's environment
    _run_as_main(request["command"])


def _run_as_main(command: list[str]) -> None:
    """Run `-c CODE ARGUMENTS`, `-m MODULE ARGUMENTS` or `SCRIPT ARGUMENTS` in a new module __main__."""
    kind, *rest = command
    main = sys.modules["__main__"] = ModuleType("__main__")
    if kind == "-c":
        sys.argv, sys.path[0] = ["-c", *rest[1:]], ""
        exec(compile(rest[0], "<string>", "exec"), main.__dict__)  # noqa: S102
        return
    if kind == "-m":
        spec = importlib.util.find_spec(rest[0])
        if spec is None or spec.origin is None or not isinstance(spec.loader, SourceFileLoader):
            raise ModuleNotFoundError(f"No module named {rest[0]}")
        main.__spec__, kind, sys.path[0] = spec, spec.origin, str(Path.cwd())
        code, rest = spec.loader.source_to_code(Path(kind).read_bytes(), kind), rest[1:]
    else:
        code, sys.path[0] = compile(Path(kind).read_bytes(), kind, "exec"), str(Path(kind).parent)
    main.__file__, sys.argv = kind, [kind, *rest]
    exec(code, main.__dict__)  # noqa: S102


def _check(command: list[str]) -> None:
    """Raise ValueError if the server cannot run the program."""
    if not command or (command[0].startswith("-") and command[0] not in ("-c", "-m")):
        raise ValueError(f"no program or unknown options: {command}")
    if (job := os.environ.get("RAY_JOB_ID", _FIRST_JOB)) != _FIRST_JOB:
        raise ValueError(f"job {job}")


def _is_open(number: int) -> bool:
    with suppress(OSError):
        return fcntl.fcntl(number, fcntl.F_GETFD) >= 0
    return False


def _send(process: int, number: int) -> None:
    with suppress(ProcessLookupError):
        os.kill(process, number)


if __name__ == "__main__":
    if __package__:
        # When the run was killed, Ray's driver gets SIGTERM too, and ends Ray.
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGTERM, 0, 0, 0)
        serve(Path(sys.argv[1]), import_verl())()
    else:
        run(sys.argv[1], sys.argv[2:])
