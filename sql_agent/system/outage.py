"""Say once that something does not answer, and once that it answers again."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

PATIENCE_S = 4.0  # after which something is said to be waited for
_FAR_LONGER = 3
OUTAGE_S = 60.0  # for which what went away is waited for: a database or model server restarts in less


class Outage:
    """Tells through `say` of each time in which `name`, the beginning of a sentence, does not answer.

    Its methods may be called from several threads.
    """

    def __init__(self, name: str, say: Callable[[str], object]) -> None:
        self._name = name
        self._say = say
        self._lasts = False
        self._lock = threading.Lock()

    def begin(self, how: str) -> None:
        """Say `how`, such as "does not answer", unless that was said since it answered last."""
        if self._changes_to(lasts=True):
            self._say(f"{self._name} {how}")

    def end(self) -> None:
        """Say that it answers again, where it was said that it does not."""
        if self._changes_to(lasts=False):
            self._say(f"{self._name} answers again.")

    def _changes_to(self, *, lasts: bool) -> bool:
        with self._lock:
            changes, self._lasts = self._lasts is not lasts, lasts
            return changes


class Patience:
    """Begins an outage when a request, which is given `timeout_s`, takes far longer than each one before.

    So a model that always thinks for half a minute is said to be slow once, and not at each request.
    """

    def __init__(self, outage: Outage, timeout_s: float) -> None:
        self._outage = outage
        self._timeout_s = timeout_s
        self._slowest_s = 0.0  # of the answers so far

    @contextmanager
    def during_request(self) -> Iterator[None]:
        """Make one request inside, on a running event loop."""
        started, patience_s = time.monotonic(), max(PATIENCE_S, _FAR_LONGER * self._slowest_s)
        how = f"has not answered a request for {patience_s:.0f} s; each is given {self._timeout_s:g} s"
        late = asyncio.get_running_loop().call_later(patience_s, self._outage.begin, how)
        try:
            yield
            self._slowest_s = max(self._slowest_s, time.monotonic() - started)
        finally:
            late.cancel()
