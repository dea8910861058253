"""Fork workers from a process with one thread, which has imported all that a worker needs.

A program with threads must not fork: a lock that another thread has taken stays locked in the child, which hung one
time in ten. So the program starts this server as a new program, which imports sqlglot once, in half a second. The
server reads the names of each database once, for all of its workers, and forks a worker in a few milliseconds. All of
them end when the program ends, however it ends.
"""

from __future__ import annotations

import contextlib
import gc
import json
import logging
import os
import pickle
import signal
import socket
import struct
import sys
import tempfile
import threading
from contextlib import closing
from functools import lru_cache
from multiprocessing.connection import Connection as Pipe
from typing import NoReturn

from sql_agent.database.guard import check
from sql_agent.database.name_index import NameIndex, read_names
from sql_agent.database.schema import Schema
from sql_agent.database.source import Opened
from sql_agent.database.sqlite.dialect import SQLITE
from sql_agent.database.worker import Session, answer_requests, limit_resources
from sql_agent.errors import QueryError
from sql_agent.system.signals import die_with_parent

_ORDER = struct.Struct("!I")  # the length of the pickled database that follows; a socket comes along
_MOST_DATABASES = 100  # whose names are kept
_FIRST = "WITH a AS (SELECT 1 AS x) SELECT max(a.x) FROM a JOIN a b ON a.x LIKE b.x WHERE a.x IN (1) ORDER BY 1 LIMIT 1"

_Database = tuple[Opened, NameIndex, str | None]


class ForkServer:
    """Asks the server for workers; starts the server when the first worker is needed, and again after `end`."""

    def __init__(self) -> None:
        self._lock = threading.RLock()  # a database may be collected, and so closed, while another is opened
        self._control: socket.socket | None = None
        self._pid = 0

    def fork(self, opened: bytes) -> Pipe:
        """Return the pipe to a new worker for the pickled `opened`. Raises OSError when the server was killed."""
        ours, theirs = socket.socketpair()
        with ours, theirs, self._lock:
            if self._control is None:
                self._control, self._pid = _started()
            socket.send_fds(self._control, [_ORDER.pack(len(opened))], [theirs.fileno()])
            self._control.sendall(opened)
            return Pipe(ours.detach())

    def end(self) -> None:
        """End the server and its workers."""
        with self._lock:
            if self._control is None:
                return
            self._control.close()
            self._control = None
            with contextlib.suppress(ProcessLookupError, ChildProcessError):
                os.kill(self._pid, signal.SIGTERM)
                os.waitpid(self._pid, 0)

    def forget(self) -> None:
        """Leave the server to the process that this one was forked from."""
        if self._control is not None:
            self._control.close()
        self.__init__()  # type: ignore[misc]


def _started() -> tuple[socket.socket, int]:
    """Start the server as a new program, which unlike a fork is safe beside threads."""
    code = f"import sys; sys.path[:] = {sys.path!r}; from sql_agent.database.fork_server import main; main()"
    ours, theirs = socket.socketpair()
    with theirs:
        files = [(os.POSIX_SPAWN_DUP2, theirs.fileno(), 0), (os.POSIX_SPAWN_OPEN, 1, os.devnull, os.O_WRONLY, 0)]
        # In a process group of its own: Ctrl-C is for this program, which ends the server when it is ready to.
        pid = os.posix_spawn(sys.executable, [sys.executable, "-c", code], os.environ, file_actions=files, setpgroup=0)
    return ours, pid


def main() -> None:
    """Run the server: fork a worker for each order on the socket that is standard input, and end when it closes."""
    control = socket.socket(fileno=os.dup(0))
    os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # the kernel then forgets workers that ended
    logging.getLogger("sqlglot").setLevel(logging.CRITICAL)  # its warnings quote statements
    check(_FIRST, Schema(()), SQLITE)  # what sqlglot builds at its first statement is then shared by all workers
    turns = tempfile.TemporaryFile()  # noqa: SIM115  its bytes are locked, as long as the server and its workers live
    while True:
        order, ends, _, _ = socket.recv_fds(control, _ORDER.size, 1, socket.MSG_WAITALL)
        if not order:
            return
        with socket.socket(fileno=ends[0]) as end:
            data = control.recv(_ORDER.unpack(order)[0], socket.MSG_WAITALL)
            database = _read(data)
            if not os.fork():
                control.close()
                _run_worker(Pipe(end.detach()), database, turns.fileno())


@lru_cache(_MOST_DATABASES)
def _read(data: bytes) -> _Database:
    """Return the database that `data` describes, its names, and why there are none: hints then name no rows."""
    _, opened = pickle.loads(data)  # noqa: S301  from the program that started us
    names, trouble = NameIndex(()), None
    if opened.hinted:
        try:
            with closing(opened.engine.connect(opened.schema, opened.limits)) as connection:
                names = NameIndex(read_names(opened.schema, opened.names, connection.read))
        except QueryError as error:
            trouble = error.message
        except Exception as error:  # of the task's own functions that find other names
            trouble = f"{type(error).__name__}: {error}"
    gc.collect()
    gc.freeze()  # its objects stay, and looking at them would copy the pages that the workers share
    return opened, names, trouble


def _run_worker(pipe: Pipe, database: _Database, turns: int) -> NoReturn:
    die_with_parent()
    opened, names, trouble = database
    status = 1
    try:
        limit_resources()
        session = Session(opened, names, turns)
        pipe.send_bytes(json.dumps({"pid": os.getpid(), "trouble": trouble}).encode())
        answer_requests(pipe, session)
        status = 0
    except (SystemExit, ConnectionError):  # the program has ended, or does not want the answer any more
        status = 0
    except BaseException:
        sys.excepthook(*sys.exc_info())  # the program sees the pipe close; what went wrong is for its log
    finally:
        sys.stderr.flush()
        os._exit(status)
