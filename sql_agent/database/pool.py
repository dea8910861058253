"""Keep the databases of a task open, each from the first question that needs it, and close those not used lately."""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from types import TracebackType
from typing import Self

from sql_agent.database.database import Database

_KEEP = 32  # databases; each has a connection, and so a file handle, for every query that ran at once


@dataclass
class _Opened:
    """Counts the users of an open database."""

    database: Database
    users: int = 0


class DatabasePool:
    """Opens databases by name with `open_named` and keeps the `keep` that were used last; from any thread.

    The name None stands for the run's own. One in use is never closed, so more than `keep` may be open.
    """

    def __init__(self, open_named: Callable[[str | None], Database], *, keep: int = _KEEP) -> None:
        self._open_named = open_named
        self._keep = keep
        self._opened: OrderedDict[str | None, _Opened] = OrderedDict()  # least recently used first
        self._lock = threading.Lock()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    @contextmanager
    def of(self, name: str | None) -> Iterator[Database]:
        """Yield the database `name`. Raises what `open_named` raises, such as DatabaseFileError."""
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
        """Open each of `names` once, so that a wrong one is found early; raises as `of` does."""
        for name in dict.fromkeys(names):
            with self.of(name):
                pass

    def forget(self, database: Database) -> None:
        """Have `database` opened anew for whoever needs it next; it is closed when those who use it have ended."""
        with self._lock:
            for name, opened in list(self._opened.items()):
                if opened.database is database:
                    del self._opened[name]
                    if not opened.users:
                        database.close()

    def close(self) -> None:
        """Close all databases; a query that is still running closes its own connection when it ends."""
        with self._lock:
            for opened in self._opened.values():
                opened.database.close()
            self._opened.clear()

    def _close_unused(self) -> None:
        for name in [name for name, opened in self._opened.items() if not opened.users]:
            if len(self._opened) <= self._keep:
                return
            self._opened.pop(name).database.close()
