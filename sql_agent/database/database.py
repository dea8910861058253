"""Define the interface to a database, and keep a pool of open databases."""

from __future__ import annotations

import asyncio
import functools
import threading
from abc import ABC, abstractmethod
from collections import OrderedDict
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from typing import ParamSpec, Self, TypeVar

from sql_agent.database.counterfactual import Change
from sql_agent.database.dialect import Dialect
from sql_agent.database.named_values import NamedValue
from sql_agent.database.schema import Schema
from sql_agent.schemas import QueryAnswer, QueryLimits

# Limit of concurrent queries to one database: twice the default `runner.concurrency`. Other queries wait.
MAX_QUERIES = 64
_KEPT_OPEN = 64  # databases kept open; each has a process and a connection for each concurrent query

_In = ParamSpec("_In")
_Out = TypeVar("_Out")


class Database(ABC):
    """A database that is queried read-only. `query` is thread-safe, but must not be called in a forked child process.

    Statements may read only the tables of `schema`. `str(source)` is the database's path or URL, without a password.
    """

    def __init__(self, source: object, schema: Schema, dialect: Dialect, limits: QueryLimits) -> None:
        self.source = source
        self.schema = schema
        self.dialect = dialect
        self.limits = limits
        # Not asyncio's default thread pool, where slow statements would delay all other work.
        self._threads = ThreadPoolExecutor(MAX_QUERIES, thread_name_prefix="query")

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_error: object) -> None:
        self.close()

    @abstractmethod
    def query(self, sql: str, *, changes: Sequence[Change] = ()) -> QueryAnswer:
        """Run one statement. The answer has an `error` if the statement is refused, fails or is too slow.

        With `changes`, the statement reads changed tables and the answer has no `hint`. Raises DatabaseFileError if the
        database does not answer.
        """

    @abstractmethod
    def named_values(self, text: str) -> list[NamedValue]:
        """Return the database's values that `text` (such as a question) mentions, in the order of `text`.

        Raises DatabaseFileError if the database does not answer.
        """

    async def in_thread(self, function: Callable[_In, _Out], *args: _In.args, **kwargs: _In.kwargs) -> _Out:
        """Run the blocking `function` in one of this database's threads and return its result."""
        call = functools.partial(function, *args, **kwargs)
        return await asyncio.get_running_loop().run_in_executor(self._threads, call)

    def close(self) -> None:
        """Stop all queries. Running statements return an error."""
        self._threads.shutdown(wait=False)


@dataclass
class _Opened:
    database: Database
    users: int = 0


class DatabasePool:
    """A thread-safe pool of databases that are opened by name with `open_named`; None names the run's own database.

    While more than `keep` databases are open, those without users are closed, the least recently used first.
    """

    def __init__(self, open_named: Callable[[str | None], Database], *, keep: int = _KEPT_OPEN) -> None:
        self._open_named = open_named
        self._keep = keep
        self._opened: OrderedDict[str | None, _Opened] = OrderedDict()  # least recently used first
        self._lock = threading.Lock()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_error: object) -> None:
        self.close()

    @contextmanager
    def of(self, name: str | None) -> Iterator[Database]:
        """Yield the database `name`, opened if necessary. Raises the errors of `open_named`."""
        with self._lock:
            opened = self._opened.pop(name, None) or _Opened(self._open_named(name))
            self._opened[name] = opened
            opened.users += 1
            self._close_unused()
        try:
            yield opened.database
        finally:
            with self._lock:
                opened.users -= 1
                if self._opened.get(name) is opened:
                    self._close_unused()
                elif not opened.users:
                    opened.database.close()

    def check(self, names: Iterable[str | None]) -> None:
        """Open each of `names` once, to report wrong names early. Raises the errors of `of`."""
        for name in dict.fromkeys(names):
            with self.of(name):
                pass

    def forget(self, database: Database) -> None:
        """Close `database` once its current users have finished; the next user gets a newly opened database."""
        with self._lock:
            for name, opened in list(self._opened.items()):
                if opened.database is database:
                    del self._opened[name]
                    if not opened.users:
                        database.close()

    def close(self) -> None:
        """Close all databases. Running queries return an error."""
        with self._lock:
            for opened in self._opened.values():
                opened.database.close()
            self._opened.clear()

    def _close_unused(self) -> None:
        for name in [name for name, opened in self._opened.items() if not opened.users]:
            if len(self._opened) <= self._keep:
                return
            self._opened.pop(name).database.close()
