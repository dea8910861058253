"""Define what queries a database, in this program's worker processes or behind an MCP server."""

from __future__ import annotations

import asyncio
import functools
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from types import TracebackType
from typing import ParamSpec, Self, TypeVar

from sql_agent.database.dialect import Dialect
from sql_agent.database.provenance import CellRef
from sql_agent.database.schema import Schema
from sql_agent.database.workers import MAX_WORKERS
from sql_agent.schemas import QueryAnswer, QueryLimits

_In = ParamSpec("_In")
_Out = TypeVar("_Out")


class Database(ABC):
    """Queries a database read-only. `query` may be called from several threads at once, and not after a fork.

    Statements may read the tables of `schema` and no others. As a text `source` says where the database is, without a
    password.
    """

    def __init__(self, source: object, schema: Schema, dialect: Dialect, limits: QueryLimits) -> None:
        self.source = source
        self.schema = schema
        self.dialect = dialect
        self.limits = limits
        # Their own, because slow statements in the threads that the program shares would hold up everything else.
        self._threads = ThreadPoolExecutor(MAX_WORKERS, thread_name_prefix="query")

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    @abstractmethod
    def query(self, sql: str, *, emptied: Sequence[CellRef] = ()) -> QueryAnswer:
        """Run one statement. A statement that is refused, fails or is too slow gives an answer with `error` set.

        Raises DatabaseFileError when the database's server cannot be reached, which is no statement's fault. The cells
        `emptied` read as NULL, which shows whether the statement needs them; there is no `hint` then.
        """

    async def in_thread(self, function: Callable[_In, _Out], *args: _In.args, **kwargs: _In.kwargs) -> _Out:
        """Return what `function`, which queries this database, returns; the event loop goes on meanwhile."""
        call = functools.partial(function, *args, **kwargs)
        return await asyncio.get_running_loop().run_in_executor(self._threads, call)

    def close(self) -> None:
        """End what queries the database; a statement that is running is answered with an error."""
        self._threads.shutdown(wait=False)
