"""Say once that something does not answer, and once that it answers again."""

from __future__ import annotations

from collections.abc import Callable


class Outage:
    """Tells through `say` of each time in which `name`, the beginning of a sentence, does not answer."""

    def __init__(self, name: str, say: Callable[[str], object]) -> None:
        self._name = name
        self._say = say
        self._lasts = False

    def begin(self, how: str) -> None:
        """Say `how`, such as "does not answer", unless that was said since it answered last."""
        if not self._lasts:
            self._lasts = True
            self._say(f"{self._name} {how}")

    def end(self) -> None:
        """Say that it answers again, where it was said that it does not."""
        if self._lasts:
            self._lasts = False
            self._say(f"{self._name} answers again.")
