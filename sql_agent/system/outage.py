"""Say once that something does not answer, and once that it answers again."""

from __future__ import annotations

import threading
from collections.abc import Callable

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
