"""Interrupt statements that exceed their deadline, from a separate thread."""

from __future__ import annotations

import sqlite3
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager

# An interrupt that arrives between compiling and running a statement is lost, so it is sent again.
RETRY_S = 0.02


class Watchdog:
    """Interrupts each statement after `deadline_s` seconds.

    SQLite's progress handler would take Python's lock thousands of times a scan, which makes a 10 ms query take
    seconds while another thread is busy. The thread here sleeps until the first deadline and ends when nothing runs.
    """

    def __init__(self, deadline_s: float) -> None:
        self._deadline_s = deadline_s
        self._lock = threading.Lock()
        self._due: dict[sqlite3.Connection, float] = {}
        self._watching = False

    @contextmanager
    def watching(self, connection: sqlite3.Connection) -> Iterator[None]:
        """Interrupt whatever `connection` runs inside this block once the deadline has passed."""
        with self._lock:
            self._due[connection] = time.monotonic() + self._deadline_s
            if not self._watching:
                threading.Thread(target=self._watch, name="sql-deadline", daemon=True).start()
                self._watching = True
        try:
            yield
        finally:
            # Under the lock, so that no interrupt can hit the connection's next statement.
            with self._lock:
                del self._due[connection]

    def _watch(self) -> None:
        while True:
            with self._lock:
                if not self._due:
                    self._watching = False
                    return
                now = time.monotonic()
                for connection, due in self._due.items():
                    if due <= now:
                        connection.interrupt()
                pause = max(min(self._due.values()) - now, RETRY_S)
            time.sleep(pause)
