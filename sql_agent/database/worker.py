"""Answer statements in a process of its own: parse, check, execute, cap the answer, write the hint.

Neither sqlglot nor SQLite's compiler and functions can be interrupted, and a server may not answer. Here they need not
be: the parent kills the process at the deadline, and the operating system holds it to its memory and time.
"""

from __future__ import annotations

import contextlib
import math
import resource
import sys
import traceback
from collections.abc import Sequence
from dataclasses import replace

from sql_agent.database.channel import Channel
from sql_agent.database.engine import Connection, Opened
from sql_agent.database.guard import CheckedQuery, check
from sql_agent.database.hints import Hints
from sql_agent.database.lacking import is_wanted
from sql_agent.database.name_index import NameIndex
from sql_agent.database.provenance import CellRef, with_cells_emptied
from sql_agent.database.schema import fold
from sql_agent.database.truncation import refusal
from sql_agent.errors import QueryError
from sql_agent.schemas import QueryAnswer

MAX_MEMORY_BYTES = 512 * 1024 * 1024  # of addresses; 90 MB of them are taken by the interpreter and its modules
_MAX_FILE_BYTES = 64 * 1024  # for SQLite's index of a write-ahead log; nothing else is ever written
# A worker that needed this much more memory than at its start is replaced, because little of it would come back.
_SWOLLEN_KIB = 100 * 1024
# Each of the few statements behind a hint may take this long; on the databases seen they take a tenth of it.
_HINT_STATEMENT_S = 0.25


def limit_resources() -> None:
    """Hold this process to its memory; it cannot write large files, start processes or leave a core."""
    limits = {resource.RLIMIT_FSIZE: _MAX_FILE_BYTES, resource.RLIMIT_CORE: 0}
    if sys.platform.startswith("linux"):  # elsewhere these two cannot be set or count other processes
        limits |= {resource.RLIMIT_AS: MAX_MEMORY_BYTES, resource.RLIMIT_NPROC: 0}
    for which, value in limits.items():
        _, most = resource.getrlimit(which)
        limit = value if most == resource.RLIM_INFINITY else min(value, most)
        resource.setrlimit(which, (limit, limit))


def answer_requests(channel: Channel, session: Session) -> None:
    """Answer statements until the parent closes its end or this process has grown; then return.

    A request is `{"sql": text, "emptied": [[table, id, column], ...]}`. Its reply is `{"answer": QueryAnswer, "last":
    whether this worker ends, "more": whether a hint follows}`, and the hint `{"hint": text or null, "trouble": text}`.
    """
    least = _peak_kib()
    while True:
        try:
            request = channel.receive()
        except EOFError:
            return
        _limit_cpu(session.deadline_s)
        answer, checked = session.answer(request["sql"], [CellRef(*cell) for cell in request["emptied"]])
        more = session.hinted and checked is not None and not request["emptied"] and is_wanted(checked.sql, answer)
        last = _peak_kib() > least + _SWOLLEN_KIB
        channel.send({"answer": answer.model_dump(), "last": last, "more": more})
        if more and checked is not None:
            channel.send(session.hint(checked.sql, answer))
        if last:
            return


def _peak_kib() -> int:
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak if sys.platform != "darwin" else peak // 1024


def _limit_cpu(deadline_s: float) -> None:
    """End this process by the kernel's hand when the parent, stopped or busy, does not do it at the deadline."""
    used = resource.getrusage(resource.RUSAGE_SELF)
    limit = math.ceil(used.ru_utime + used.ru_stime + deadline_s) + 1
    resource.setrlimit(resource.RLIMIT_CPU, (limit, resource.RLIM_INFINITY))


class Session:
    """Holds one connection, and what every statement is checked against."""

    def __init__(self, opened: Opened, names: NameIndex) -> None:
        self.deadline_s = opened.limits.deadline_s
        self.hinted = opened.hinted
        self._opened = opened
        self._dialect = opened.engine.dialect
        self._connection: Connection | None = None
        self._hints = Hints(opened.schema, opened.names, names, self._read, self._dialect)
        with contextlib.suppress(QueryError):  # the first statement tries again, and says why it fails
            self._connect()

    def answer(self, sql: str, emptied: Sequence[CellRef]) -> tuple[QueryAnswer, CheckedQuery | None]:
        """Return the answer to `sql`, and the statement that ran; None when it failed."""
        try:
            checked = check(sql, self._opened.schema, self._dialect)
            if emptied:
                tables = frozenset(fold(cell.table) for cell in emptied)
                plain = with_cells_emptied(checked.sql, self._opened.schema, emptied, self._dialect)
                checked = replace(checked, sql=plain, ctes=checked.ctes | tables)
            answer = self._run(checked)
        except QueryError as error:
            return refusal(error.kind, error.message, error.hint), None
        except MemoryError:
            return refusal("too_complex", "out of memory", "write a shorter statement"), None
        except Exception as error:
            message = f"the statement cannot be read: {type(error).__name__}: {error}"
            return refusal("failed", message, "write it in another way"), None
        return answer, checked

    def hint(self, sql: str, answer: QueryAnswer) -> dict[str, str | None]:
        """Return the message with the hint, or with what went wrong there; the answer itself is right."""
        try:
            return {"hint": self._hints.hint(sql, answer), "trouble": None}
        except Exception:
            return {"hint": None, "trouble": traceback.format_exc()[-2000:]}

    def _run(self, checked: CheckedQuery) -> QueryAnswer:
        columns, records, truncated = self._connect().run(checked, self._opened.limits)
        return QueryAnswer(
            status="ok",
            columns=columns,
            records=records,
            count=len(records),
            truncated=truncated,
            from_tables=checked.from_tables,
        )

    def _read(self, sql: str) -> Sequence[tuple[object, ...]]:
        """Return all rows of a statement of our own. Raises QueryError when it fails or is too slow."""
        return self._connect().read(sql, _HINT_STATEMENT_S)

    def _connect(self) -> Connection:
        if self._connection is None:
            self._connection = self._opened.engine.connect(self._opened.schema, self._opened.limits)
        return self._connection
