"""Start the server that forks workers: one for each process that opens databases, for as long as that process lives."""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import sys
import threading

from sql_agent.database.channel import ORDER


class ForkServer:
    """Starts the server of this process with the first template.

    The server stays when all databases are closed, because starting it imports sqlglot, which takes half a second. It
    ends when this process does, however it ends.
    """

    def __init__(self) -> None:
        self.forget()

    def forget(self) -> None:
        """Know of no server, as in a process that was forked from the one that started it."""
        if control := getattr(self, "_control", None):
            control.close()
        self._lock = threading.RLock()  # a database may be collected, and so closed, while another is opened
        self._control: socket.socket | None = None
        self._pid = 0
        self._ordered = 0

    def new_template(self, opened: bytes) -> socket.socket:
        """Return the socket of a new template for the pickled database `opened`, or raise OSError."""
        ours, theirs = socket.socketpair()
        with theirs, self._lock:
            try:
                self._order(theirs)
            except OSError:  # the server was killed: with a new one, then
                self.end()
                self._order(theirs)
        try:
            ours.sendall(ORDER.pack(len(opened)) + opened)
        except OSError:
            ours.close()
            raise
        return ours

    def end(self) -> None:
        """End the server and its templates, and wait for them."""
        with self._lock:
            if self._control is None:
                return
            self._control.close()
            self._control = None
            with contextlib.suppress(ProcessLookupError, ChildProcessError):
                os.kill(self._pid, signal.SIGTERM)
                os.waitpid(self._pid, 0)

    def _order(self, end: socket.socket) -> None:
        if self._control is None:
            self._control, self._pid = _started()
        self._ordered += 1
        socket.send_fds(self._control, [ORDER.pack(self._ordered)], [end.fileno()])


def _started() -> tuple[socket.socket, int]:
    """Start the server as a new program, which unlike a fork is safe beside threads."""
    code = f"import sys; sys.path[:] = {sys.path!r}; from sql_agent.database.fork_server import main; main()"
    ours, theirs = socket.socketpair()
    with theirs:
        files = [(os.POSIX_SPAWN_DUP2, theirs.fileno(), 0), (os.POSIX_SPAWN_OPEN, 1, os.devnull, os.O_WRONLY, 0)]
        # In a process group of its own: Ctrl-C is for this program, which ends the server when it is ready to.
        pid = os.posix_spawn(sys.executable, [sys.executable, "-c", code], os.environ, file_actions=files, setpgroup=0)
    return ours, pid
