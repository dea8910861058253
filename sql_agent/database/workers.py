"""Start the processes that `worker.py` describes, send them statements, and kill those that do not answer in time."""

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

_START_S = 60.0  # that a worker may take to start, which on a busy machine includes importing sqlglot
_SERVER = "import sys; sys.path[:] = {path!r}; from sql_agent.database.worker import serve; serve()"


class Worker:
    """A process that answers one statement at a time, for the pickled database `opened`.

    Raises DatabaseFileError when the process does not start.
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
                f"no process can be started that queries the database: {error!r}",
                hint="see what the process wrote to the terminal",
            ) from error
        self._pid: int = started["pid"]
        self.trouble: str | None = started["trouble"]
        self.idle_since = 0.0

    def send(self, request: object) -> None:
        """Hand a request over. Raises OSError when the process has ended."""
        self._pipe.send_bytes(json.dumps(request).encode("ascii"))

    def receive(self, seconds: float) -> Any:
        """Return the next message. Raises TimeoutError when there is none in `seconds`, EOFError when the process ends.

        The message is JSON, because reading a pickle from a process that runs untrusted statements is not safe.
        """
        if not self._pipe.poll(max(seconds, 0)):
            raise TimeoutError
        try:
            return json.loads(self._pipe.recv_bytes())
        except OSError as error:
            raise EOFError from error

    def kill(self) -> None:
        """End the process, whatever it does. A thread that waits for its answer gets EOFError."""
        with contextlib.suppress(ProcessLookupError):
            os.kill(self._pid, signal.SIGKILL)

    def close(self) -> None:
        """Close the pipe, at which the process ends once it is idle."""
        self._pipe.close()


class _Server:
    """Starts the server when the first worker is needed, and again after the server was killed."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._process: subprocess.Popen[bytes] | None = None
        self._orders: Pipe | None = None

    def fork(self, opened: bytes, pipe: Pipe) -> None:
        """Order a worker for the pickled database `opened` at the other end of `pipe`. Raises OSError."""
        with self._lock:
            if self._process is None or self._orders is None or self._process.poll() is not None:
                self._orders, theirs = multiprocessing.Pipe()
                with theirs:
                    self._process = subprocess.Popen(  # noqa: S603
                        [sys.executable, "-c", _SERVER.format(path=sys.path)],
                        stdin=theirs.fileno(),
                        stdout=subprocess.DEVNULL,
                        process_group=0,  # Ctrl-C is for the program, which ends the server when it is ready
                    )
                _pipes.add(self._orders)
            self._orders.send_bytes(opened)
            send_handle(self._orders, pipe.fileno(), self._process.pid)

    def end(self) -> None:
        """End the server, and with the server its workers."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()

    def forget(self) -> None:
        """Leave the server to the process that this one was forked from."""
        if self._process is not None:
            self._process.returncode = 0  # of another process's child nothing can be known
        self.__init__()  # type: ignore[misc]


# A worker ends when all copies of the program's end of its pipe are closed.
_pipes: weakref.WeakSet[Pipe] = weakref.WeakSet()
_server = _Server()


def _forget_after_fork() -> None:
    """Close a forked child's copies of the pipes."""
    for pipe in list(_pipes):
        pipe.close()
    _server.forget()


atexit.register(_server.end)
os.register_at_fork(after_in_child=_forget_after_fork)
