"""Choose what to write in place of what another database understands, from an engine's table of hints."""

from __future__ import annotations

import re
from collections.abc import Sequence


class OtherDialects:
    """Maps regular expressions, which ignore case, to hints; the first that is found in a statement counts."""

    def __init__(self, default: str, hints: Sequence[tuple[str, str]]) -> None:
        self._default = default
        self._hints = [(re.compile(pattern, re.IGNORECASE), hint) for pattern, hint in hints]

    def hint_for(self, sql: str) -> str:
        """Return the hint for a statement that the engine cannot read."""
        flat = " ".join(sql.split())
        return next((hint for pattern, hint in self._hints if pattern.search(flat)), self._default)
