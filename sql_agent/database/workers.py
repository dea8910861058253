"""Start the worker processes of `worker.py`, exchange messages with them, and kill those that are too late."""

from __future__ import annotations

import atexit
import contextlib
import json
import multiprocessing
import os
import signal
import subprocess
import sys
import threading
import weakref
from multiprocessing.connection import Connection as Pipe
from multiprocessing.reduction import send_handle
from typing import Any

from sql_agent.errors import DatabaseFileError

_START_S = 60.0  # time limit for the start of a worker, including the import of sqlglot on a busy machine
_SERVER = "import sys; sys.path[:] = {path!r}; from sql_agent.database.worker import serve; serve()"


class Worker:
    """A worker process, which answers one statement at a time on the pickled database `opened`.

    Raises DatabaseFileError if the process does not start.
    """

    def __init__(self, opened: bytes) -> None:
        self._pipe, theirs = multiprocessing.Pipe()
        _pipes.add(self._pipe)
        try:
            with theirs:
                _server.fork(opened, theirs)
            started = self.receive(_START_S)
        except (OSError, EOFError) as error:
            self._pipe.close()
            raise DatabaseFileError(
                f"the worker process for the database cannot be started: {error!r}",
                hint="look for the error of the worker process in the terminal",
            ) from error
        self._pid: int = started["pid"]
        self.trouble: str | None = started["trouble"]
        self.idle_since = 0.0

    def send(self, request: object) -> None:
        """Send a request, any object that JSON can express. Raises OSError if the process has ended."""
        self._pipe.send_bytes(json.dumps(request).encode("ascii"))

    def receive(self, seconds: float) -> Any:
        """Return the next message. Raises TimeoutError if none comes in `seconds`, EOFError if the process has ended.

        The message is JSON, because unpickling data from a process that runs untrusted statements is not safe.
        """
        if not self._pipe.poll(max(seconds, 0)):
            raise TimeoutError
        try:
            return json.loads(self._pipe.recv_bytes())
        except OSError as error:
            raise EOFError from error

    def kill(self) -> None:
        """Kill the process. A thread that waits in `receive` gets EOFError."""
        with contextlib.suppress(ProcessLookupError):
            os.kill(self._pid, signal.SIGKILL)

    def close(self) -> None:
        """Close the pipe, which ends the process once it is idle."""
        self._pipe.close()


class _Server:
    """The server process that forks workers; started on first use, and again if it was killed."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._process: subprocess.Popen[bytes] | None = None
        self._orders: Pipe | None = None

    def fork(self, opened: bytes, pipe: Pipe) -> None:
        """Request a worker for the pickled database `opened`, at the other end of `pipe`. Raises OSError."""
        with self._lock:
            if self._process is None or self._orders is None or self._process.poll() is not None:
                self._orders, theirs = multiprocessing.Pipe()
                with theirs:
                    self._process = subprocess.Popen(  # noqa: S603
                        [sys.executable, "-c", _SERVER.format(path=sys.path)],
                        stdin=theirs.fileno(),
                        stdout=subprocess.DEVNULL,
                        process_group=0,  # Ctrl-C must reach only the program, which ends the server itself
                    )
                _pipes.add(self._orders)
            self._orders.send_bytes(opened)
            send_handle(self._orders, pipe.fileno(), self._process.pid)

    def end(self) -> None:
        """Kill the server; its workers die with it."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()

    def forget(self) -> None:
        """In a forked child process: drop the server, which belongs to the parent process."""
        if self._process is not None:
            self._process.returncode = 0  # no wait(): the server is not a child of this process
        self.__init__()  # type: ignore[misc]


# A worker ends when all copies of the program's end of its pipe are closed.
_pipes: weakref.WeakSet[Pipe] = weakref.WeakSet()
_server = _Server()


def _forget_after_fork() -> None:
    """Close a forked child's copies of all pipes, and drop the server."""
    for pipe in list(_pipes):
        pipe.close()
    _server.forget()


atexit.register(_server.end)
os.register_at_fork(after_in_child=_forget_after_fork)
