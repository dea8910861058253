"""Fork the workers of databases from processes with one thread, which have imported all that a worker needs.

A program with threads must not fork: a lock that another thread holds stays locked in the child, which hung one time in
ten. So the program starts this server as a new program, the server forks one template for each database, and
the template, which has read the names of the database, forks its workers in a few milliseconds. Whatever starts a
process keeps the other end of its sockets, so that all of them end when that one does, however it ends.
"""

from __future__ import annotations

import contextlib
import gc
import os
import pickle
import signal
import socket
import sys
from collections.abc import Callable
from contextlib import closing
from typing import NoReturn

from sql_agent.database.channel import ORDER, Channel
from sql_agent.database.engine import Opened
from sql_agent.database.guard import check
from sql_agent.database.name_index import NameIndex, read_names
from sql_agent.database.schema import Schema
from sql_agent.database.sqlite.dialect import SQLITE
from sql_agent.database.worker import Session, answer_requests, limit_resources
from sql_agent.errors import QueryError
from sql_agent.system.processes import die_with_parent

_FIRST = "WITH a AS (SELECT 1 AS x) SELECT max(a.x) FROM a JOIN a b ON a.x LIKE b.x WHERE a.x IN (1) ORDER BY 1 LIMIT 1"
_HANDLED = {signal.SIGCHLD, signal.SIGTERM}
MAX_REQUEST_BYTES = 16 * 1024 * 1024  # a statement, and the cells that it is to find empty


def main() -> None:
    """Fork a template for each order on the socket that is our standard input, and end when it closes."""
    control = socket.socket(fileno=os.dup(0))
    os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
    # What sqlglot builds at its first statement is then shared by all workers.
    check(_FIRST, Schema(()), SQLITE)
    _serve(control, _be_template)


def _be_template(control: socket.socket) -> None:
    """Read the database's names, then fork workers for it; what comes first on `control` says which database."""
    opened: Opened = pickle.loads(_received(control))  # noqa: S301  from the program that started us
    names, trouble = _names(opened)
    gc.collect()
    gc.freeze()  # its objects stay, and looking at them would copy the pages that the workers share
    _serve(control, lambda end: _be_worker(end, opened, names, trouble))


def _be_worker(end: socket.socket, opened: Opened, names: NameIndex, trouble: str | None) -> None:
    limit_resources()
    with closing(Channel(end, max_bytes=MAX_REQUEST_BYTES)) as channel:
        session = Session(opened, names)
        channel.send({"pid": os.getpid(), "trouble": trouble})
        answer_requests(channel, session)


def _serve(control: socket.socket, run: Callable[[socket.socket], None]) -> None:
    """Carry out the orders on `control` until it closes, then end the children: each runs `run` on its socket."""
    children: dict[int, int] = {}

    def reap(_signal: int, _frame: object) -> None:
        with contextlib.suppress(ChildProcessError):
            while (ended := os.waitpid(-1, os.WNOHANG)[0]) != 0:
                for number, pid in list(children.items()):  # copied, because another signal may come meanwhile
                    if pid == ended:
                        children.pop(number, None)

    signal.signal(signal.SIGCHLD, reap)
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
    try:
        _obey(control, children, run)
    finally:
        signal.signal(signal.SIGTERM, signal.SIG_IGN)  # a handler would interrupt Python's own end
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        for pid in list(children.values()):
            _kill(pid, signal.SIGTERM)
        with contextlib.suppress(ChildProcessError):  # there are none left
            while True:
                os.wait()


def _obey(control: socket.socket, children: dict[int, int], run: Callable[[socket.socket], None]) -> None:
    while True:
        order, ends, _, _ = socket.recv_fds(control, ORDER.size, 1)
        if not order:
            return
        (number,) = ORDER.unpack(order)
        if number < 0:
            _kill(children.get(-number), signal.SIGKILL)
            continue
        end = socket.socket(fileno=ends[0])
        # Blocked until the child is in the table, and until it has handlers of its own.
        signal.pthread_sigmask(signal.SIG_BLOCK, _HANDLED)
        pid = os.fork()
        if not pid:
            control.close()
            _be_child(end, run)
        children[number] = pid
        end.close()
        signal.pthread_sigmask(signal.SIG_UNBLOCK, _HANDLED)


def _be_child(end: socket.socket, run: Callable[[socket.socket], None]) -> NoReturn:
    for handled in _HANDLED:
        signal.signal(handled, signal.SIG_DFL)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, _HANDLED)
    die_with_parent()
    status = 1
    try:
        run(end)
        status = 0
    except (SystemExit, ConnectionError):  # the program has ended, or wants no answer any more
        status = 0
    except BaseException:
        # The program sees the socket close; what went wrong is for its log.
        sys.excepthook(*sys.exc_info())
    finally:
        sys.stderr.flush()
        os._exit(status)


def _kill(pid: int | None, how: signal.Signals) -> None:
    if pid is not None:
        with contextlib.suppress(ProcessLookupError):  # it has just ended by itself
            os.kill(pid, how)


def _received(control: socket.socket) -> bytes:
    """Receive what the program sends before its first order: a length and as many bytes."""
    size = ORDER.unpack(control.recv(ORDER.size, socket.MSG_WAITALL))[0]
    data = control.recv(size, socket.MSG_WAITALL)
    if len(data) != size:
        raise EOFError("the program ended before it said which database")
    return data


def _names(opened: Opened) -> tuple[NameIndex, str | None]:
    """Read the names of the database; return what went wrong, too: hints then name no rows."""
    if not opened.hinted:
        return NameIndex(()), None
    try:
        with closing(opened.engine.connect(opened.schema, opened.limits)) as connection:
            return NameIndex(read_names(opened.schema, opened.names, connection.read)), None
    except QueryError as error:
        return NameIndex(()), error.message
    except Exception as error:  # of the task's own functions that find other names
        return NameIndex(()), f"{type(error).__name__}: {error}"
