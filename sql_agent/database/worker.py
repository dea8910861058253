"""Answer statements in worker processes: check the statement, run it, cut the answer, write the hint.

A server process forks the workers. They protect the program from:
- Late statements. SQLite and the database servers end a statement at its deadline. But SQLite's compiler and functions,
  and a server that does not respond, cannot be interrupted, so the program kills a worker that is 0.2 s late.
- Memory and files. A worker may allocate 400 MiB, cannot write a file above 64 KiB, and starts no process.
- Crashes of the engine. The program gets an error as the answer, and the next statement gets another worker.

The processes do not prevent that a statement reads other files or uses the network. The guard and read-only connections
do.

The server exists because a program with threads must not fork: a lock that another thread holds stays locked in the
child, which made one start in ten hang. The server has a single thread. It imports sqlglot once, in half a second,
builds the indexes of each database once, and forks a worker in a few milliseconds.
"""

from __future__ import annotations

import contextlib
import gc
import json
import logging
import os
import pickle
import resource
import signal
import sys
import tempfile
import time
import traceback
from collections.abc import Callable, Sequence
from functools import lru_cache
from multiprocessing.connection import Connection as Pipe
from multiprocessing.reduction import recv_handle
from pathlib import Path
from typing import IO, Any, NamedTuple, NoReturn

from sql_agent.database.answers import refusal
from sql_agent.database.cell_texts import CellTexts, read_texts
from sql_agent.database.counterfactual import Change
from sql_agent.database.deadline import Deadline, OutOfTime
from sql_agent.database.guard import check, clean, parse
from sql_agent.database.hints import Hints
from sql_agent.database.name_index import NameIndex, read_names
from sql_agent.database.named_values import ValueIndex
from sql_agent.database.schema import Schema, quoted
from sql_agent.database.source import Connection, Opened
from sql_agent.database.sqlite.dialect import SQLITE
from sql_agent.errors import QueryError
from sql_agent.schemas import QueryAnswer
from sql_agent.system.process import die_with_parent

_MAX_MEMORY_BYTES = 400 * 1024 * 1024  # limit of the address space that a worker adds to the server's
_MAX_FILE_BYTES = 64 * 1024  # limit for SQLite's index of a write-ahead log, the only file that is written
_SWOLLEN_KIB = 100 * 1024  # a worker that has grown by this much is replaced, because Python returns little memory
_HINT_STATEMENT_S = 0.25  # time limit of each statement that is run for a hint, about ten times its usual duration
_WARM_UP_S = 0.1  # time limit of a new worker's own statement
_SHORTEST_S = 0.01  # minimum time limit, because 0 means no limit to a database server
_MOST_DATABASES = 100  # maximum number of databases whose indexes the server keeps in memory
_FIRST = "WITH a AS (SELECT 1 AS x) SELECT max(a.x) FROM a JOIN a b ON a.x LIKE b.x WHERE a.x IN (1) ORDER BY 1 LIMIT 1"


def serve() -> None:
    """Fork a worker for each request on the socket at standard input, and return when the socket is closed.

    A request consists of a pickled database and the worker's end of a pipe.
    """
    orders = Pipe(os.dup(0))
    os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # the kernel reaps ended workers
    # sqlglot's warnings quote the model's statement, and standard error is the user's terminal.
    logging.getLogger("sqlglot").setLevel(logging.CRITICAL)
    check(_FIRST, Schema(()), SQLITE)  # so that all workers share the tables that sqlglot builds at its first statement
    with tempfile.TemporaryFile() as turns, contextlib.suppress(EOFError):
        while True:
            data = orders.recv_bytes()
            with Pipe(recv_handle(orders)) as pipe:
                database = _read(data)
                if not os.fork():
                    orders.close()
                    _run_worker(pipe, database, turns)


class _Loaded(NamedTuple):
    """A database and its indexes. `trouble` is the error message if the indexes could not be built."""

    opened: Opened
    names: NameIndex
    texts: CellTexts
    values: ValueIndex
    trouble: str | None


@lru_cache(_MOST_DATABASES)
def _read(data: bytes) -> _Loaded:
    """Unpickle a database and build its indexes."""
    _, opened = pickle.loads(data)  # noqa: S301  from the program that started this server
    names, texts, trouble = NameIndex(()), CellTexts({}), None
    if opened.hinted:
        try:
            with contextlib.closing(opened.engine.connect(opened.schema, opened.limits)) as connection:
                texts = read_texts(opened.schema, connection.read)
                names = NameIndex(read_names(opened.schema, opened.names, connection.read))
        except QueryError as error:
            trouble = error.message
        except Exception as error:  # raised by the task's functions that extract aliases
            trouble = type(error).__name__
            _log_bug("the names of rows could not be read", error)
    values = ValueIndex(names, texts)
    gc.collect()
    # Garbage collection would write to, and so copy, pages that workers share. It never frees frozen objects.
    gc.freeze()
    return _Loaded(opened, names, texts, values, trouble)


def _run_worker(pipe: Pipe, loaded: _Loaded, turns: IO[bytes]) -> NoReturn:
    """Send the process id and `trouble` through `pipe`, answer the requests from `pipe`, and end this process."""
    die_with_parent()
    try:
        _limit_resources()
        session = _Session(loaded, turns)
        _send(pipe, {"pid": os.getpid(), "trouble": loaded.trouble})
        session.answer_all(pipe)
    except (EOFError, ConnectionError):
        pass  # the program has ended, or has closed the database
    except BaseException as error:
        _log_bug("a worker ended", error)  # the program only sees that the pipe is closed
    finally:
        sys.stderr.flush()
        os._exit(0)


def _limit_resources() -> None:
    limits = {resource.RLIMIT_FSIZE: _MAX_FILE_BYTES, resource.RLIMIT_CORE: 0}
    if sys.platform.startswith("linux"):  # other systems lack these limits, or count other processes too
        shared = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
        limits |= {resource.RLIMIT_AS: shared + _MAX_MEMORY_BYTES, resource.RLIMIT_NPROC: 0}
    for which, value in limits.items():
        _, most = resource.getrlimit(which)
        limit = value if most == resource.RLIM_INFINITY else min(value, most)
        resource.setrlimit(which, (limit, limit))


def _send(pipe: Pipe, message: object) -> None:
    pipe.send_bytes(json.dumps(message).encode("ascii"))  # other characters are escaped, lone surrogates too


def _peak_kib() -> int:
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak if sys.platform != "darwin" else peak // 1024


def _log_bug(failed: str, error: BaseException) -> None:
    """Log the traceback of `error` without the error's message, which may quote a question, a statement or a row."""
    places = "".join(traceback.format_tb(error.__traceback__))
    logging.getLogger(__name__).error("%s: %s\n%s", failed, type(error).__name__, places)


class _Session:
    """Answers the statements that one worker receives, over one connection."""

    def __init__(self, loaded: _Loaded, turns: IO[bytes]) -> None:
        self._opened = opened = loaded.opened
        self._values = loaded.values
        self._turns = turns
        self._due = 0.0  # the deadline of the current request, by time.monotonic()
        self._connection: Connection | None = None
        self._hints = Hints(opened, loaded.names, loaded.texts, self._read)
        # A statement copies memory pages that are shared with the server. They are copied now, so that a model's first
        # statement takes 1.3 ms instead of 4 ms. A hint would copy further pages, in 30 ms.
        table, columns = opened.schema.tables[0]
        sql = f"SELECT {quoted(columns[0])} FROM {quoted(table)} LIMIT 1"
        self._answer({"sql": sql, "changes": [], "due": time.monotonic() + _WARM_UP_S})

    def answer_all(self, pipe: Pipe) -> None:
        """Answer requests until this process has grown too large. Raises EOFError when the parent closes the pipe.

        A request is JSON: `{"sql": text, "changes": [Change as an object, ...], "due": deadline by time.monotonic()}`.
        The reply is `{"answer": QueryAnswer, "last": whether this worker ends now}`. The request `{"text": text}` has
        the reply `{"values": the values that the text names, "last": ...}`.
        """
        most_kib = _peak_kib() + _SWOLLEN_KIB
        while _peak_kib() <= most_kib:
            request = json.loads(pipe.recv_bytes())
            if "text" in request:
                found = self._values.named_in(request["text"])
                reply: dict[str, object] = {"values": [value.model_dump() for value in found]}
            else:
                reply = {"answer": self._answer(request).model_dump()}
            _send(pipe, {**reply, "last": _peak_kib() > most_kib})

    def _answer(self, request: dict[str, Any]) -> QueryAnswer:
        sql, changes = request["sql"], [Change(**change) for change in request["changes"]]
        self._due = request["due"]
        deadline, failed = Deadline(self._due, self._turns), None
        try:
            result = self._connect().run(sql, changes, deadline)
        except QueryError as error:
            failed = error
        except MemoryError:
            return refusal("too_complex", "out of memory", "write a shorter statement")
        except Exception as error:
            _log_bug("a statement could not be answered", error)
            message = f"the statement cannot be read: {type(error).__name__}: {error}"
            return refusal("failed", message, "write the statement in another way")
        finally:
            deadline.end_turn()
        if failed is not None:
            hint = failed.hint
            if failed.kind == "unknown_column" and self._opened.hinted and not changes:
                hint = self._hint(lambda: self._after_unknown_column(sql, hint), deadline) or hint
            return refusal(failed.kind, failed.message, hint)
        answer = QueryAnswer(
            status="ok",
            columns=result.columns,
            records=result.records,
            count=len(result.records),
            truncated=result.truncated,
            from_tables=result.from_tables,
        )
        if changes or result.tree is None or not self._opened.hinted:
            return answer
        tree = result.tree
        return answer.model_copy(update={"hint": self._hint(lambda: self._hints.hint(tree, answer), deadline)})

    def _after_unknown_column(self, sql: str, remark: str | None) -> str | None:
        dialect = self._opened.engine.dialect
        return self._hints.after_unknown_column(parse(clean(sql, dialect), dialect), remark)

    def _hint(self, write: Callable[[], str | None], deadline: Deadline) -> str | None:
        """Return the hint from `write`; None if no time is left or `write` fails."""
        if self._due - time.monotonic() < _SHORTEST_S:
            return None
        try:
            with deadline.enforced():
                return write()
        except OutOfTime:
            if self._connection is not None:  # the interrupted connection may be unusable
                self._connection.close()
                self._connection = None
        except MemoryError:
            logging.getLogger(__name__).warning("a hint could not be written: out of memory")
        except Exception as error:
            _log_bug("a hint could not be written", error)
        return None

    def _read(self, sql: str) -> Sequence[tuple[object, ...]]:
        """Return all rows of a trusted statement. Raises QueryError if the statement fails or takes over 0.25 s."""
        left = self._due - time.monotonic()
        if left < _SHORTEST_S:
            raise OutOfTime  # here, because SQLite drops an OutOfTime that interrupts a statement
        return self._connect().read(sql, min(_HINT_STATEMENT_S, left))

    def _connect(self) -> Connection:
        if self._connection is None:
            self._connection = self._opened.engine.connect(self._opened.schema, self._opened.limits)
        return self._connection
