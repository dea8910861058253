"""Answer statements in a process of its own: check, run, cap the answer, write the hint.

Neither SQLite's compiler and functions nor a server that is silent can be interrupted. The parent therefore kills the
process shortly after the deadline, and the operating system limits its memory and processor time.
"""

from __future__ import annotations

import contextlib
import json
import logging
import math
import resource
import sys
import time
import traceback
from collections.abc import Sequence
from multiprocessing.connection import Connection as Pipe
from typing import Any

from sqlglot import exp

from sql_agent.database.answers import refusal
from sql_agent.database.counterfactual import Change
from sql_agent.database.deadline import Deadline, OutOfTime
from sql_agent.database.hints import Hints, is_wanted
from sql_agent.database.name_index import NameIndex
from sql_agent.database.source import Connection, Opened
from sql_agent.errors import QueryError
from sql_agent.schemas import QueryAnswer

MAX_MEMORY_BYTES = 512 * 1024 * 1024  # of addresses; 90 MB of them are taken by the interpreter and its modules
MAX_REQUEST_BYTES = 16 * 1024 * 1024  # a statement, and the cells that it is to find empty
_MAX_FILE_BYTES = 64 * 1024  # for SQLite's index of a write-ahead log; nothing else is ever written
# A worker that needed this much more memory than at its start is replaced, because little of it would come back.
_SWOLLEN_KIB = 100 * 1024
# Each of the few statements behind a hint may take this long; on the databases seen they take a tenth of it.
_HINT_STATEMENT_S = 0.25


def limit_resources() -> None:
    """Limit this process's memory; it cannot write large files, start processes or leave a core."""
    limits = {resource.RLIMIT_FSIZE: _MAX_FILE_BYTES, resource.RLIMIT_CORE: 0}
    if sys.platform.startswith("linux"):  # elsewhere these two cannot be set or count other processes
        limits |= {resource.RLIMIT_AS: MAX_MEMORY_BYTES, resource.RLIMIT_NPROC: 0}
    for which, value in limits.items():
        _, most = resource.getrlimit(which)
        limit = value if most == resource.RLIM_INFINITY else min(value, most)
        resource.setrlimit(which, (limit, limit))


def answer_requests(pipe: Pipe, session: Session) -> None:
    """Answer statements until the parent closes its end or this process has grown; then return.

    A request is JSON: `{"sql": text, "changes": [Change as an object, ...], "due": seconds of time.monotonic()}`. Its
    reply is `{"answer": QueryAnswer, "trouble": why there is no hint, "last": whether this worker ends now}`.
    """
    # sqlglot's warnings quote the statement, which a model wrote, and standard error is the user's terminal.
    logging.getLogger("sqlglot").setLevel(logging.CRITICAL)
    least = _peak_kib()
    while True:
        try:
            request = json.loads(pipe.recv_bytes(MAX_REQUEST_BYTES))
        except EOFError:
            return
        _limit_cpu(request["due"] - time.monotonic())
        answer, trouble = session.answer(request)
        last = _peak_kib() > least + _SWOLLEN_KIB
        reply = {"answer": answer.model_dump(), "trouble": trouble, "last": last}
        pipe.send_bytes(json.dumps(reply).encode("ascii"))  # other characters are escaped, lone surrogates too
        if last:
            return


def _peak_kib() -> int:
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak if sys.platform != "darwin" else peak // 1024


def _limit_cpu(seconds: float) -> None:
    """Have the kernel end this process when the parent, stopped or busy, does not do so after the deadline."""
    limit = math.ceil(time.process_time() + max(seconds, 0)) + 1
    resource.setrlimit(resource.RLIMIT_CPU, (limit, resource.RLIM_INFINITY))


class Session:
    """Answers the statements that reach one worker, over one connection."""

    def __init__(self, opened: Opened, names: NameIndex, turns: int) -> None:
        self._opened = opened
        self._turns = turns
        self._connection: Connection | None = None
        self._hints = Hints(opened.schema, opened.names, names, self._read, opened.engine.dialect)
        with contextlib.suppress(QueryError):  # the first statement tries again, and says why it fails
            self._connect()

    def answer(self, request: dict[str, Any]) -> tuple[QueryAnswer, str | None]:
        """Return the answer, and what went wrong with its hint."""
        sql, changes = request["sql"], [Change(**change) for change in request["changes"]]
        deadline = Deadline(request["due"], self._turns)
        try:
            result = self._connect().run(sql, changes, self._opened.limits, deadline)
        except QueryError as error:
            return refusal(error.kind, error.message, error.hint), None
        except MemoryError:
            return refusal("too_complex", "out of memory", "write a shorter statement"), None
        except Exception as error:
            message = f"the statement cannot be read: {type(error).__name__}: {error}"
            return refusal("failed", message, "write it in another way"), None
        finally:
            deadline.end_turn()
        answer = QueryAnswer(
            status="ok",
            columns=result.columns,
            records=result.records,
            count=len(result.records),
            truncated=result.truncated,
            from_tables=result.from_tables,
        )
        if changes or result.tree is None or not self._opened.hinted or not is_wanted(sql, answer):
            return answer, None
        hint, trouble = self._hint(result.tree, answer, deadline)
        return answer.model_copy(update={"hint": hint}), trouble

    def _hint(self, tree: exp.Query, answer: QueryAnswer, deadline: Deadline) -> tuple[str | None, str | None]:
        """Return the hint, and what went wrong with it; the answer itself is right either way."""
        try:
            with deadline.enforced():
                return self._hints.hint(tree, answer), None
        except OutOfTime:
            if self._connection is not None:  # the time ran out while it was in use
                self._connection.close()
                self._connection = None
            return None, "no time was left for it"
        except Exception:
            return None, traceback.format_exc()[-2000:]

    def _read(self, sql: str) -> Sequence[tuple[object, ...]]:
        """Return all rows of a statement of our own. Raises QueryError when it fails or is too slow."""
        return self._connect().read(sql, _HINT_STATEMENT_S)

    def _connect(self) -> Connection:
        if self._connection is None:
            self._connection = self._opened.engine.connect(self._opened.schema, self._opened.limits)
        return self._connection
