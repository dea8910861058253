"""Read what verl and its processes printed: the last line, the error that ended it, the failure of vLLM."""

from __future__ import annotations

import re
import time
from pathlib import Path

from rich.text import Text

_SHOWN = 500  # characters of a line
# What Ray and vLLM put before a line: "(WorkerDict pid=7) (Worker pid=8) ERROR 11-23 15:46:55 [core.py:1] ".
_PREFIX = re.compile(r"^(?:\([^()]*\bpid=[^()]*\)\s*)*(?:[A-Z]+ [\d-]+ [\d:]+ \[[^\]]*\]\s*)?")
_ERROR = re.compile(r"^(?:error:|[\w.]*(?:Error|Exception)\b(?!\())")
# As vLLM says it. After either it serves nothing more.
_ENGINE_FAILED = ("Worker failed with error", "died unexpectedly, shutting down executor")
_GRACE_S = 10.0


class EngineWatch:
    """Notices in the log of a verl that just starts that its vLLM has failed.

    verl notices this itself while it rolls out, but waits for ever when it happens while vLLM takes the new weights.
    """

    def __init__(self, log: Path) -> None:
        self._log = log
        self._position = log.stat().st_size if log.exists() else 0
        self._cause: str | None = None
        self._since = 0.0

    def failure(self) -> str | None:
        """Return what vLLM said of its failure, once verl has had ten seconds to end because of it; None before."""
        if self._cause is None and (cause := self._said()):
            self._cause, self._since = cause, time.monotonic()
        return self._cause if time.monotonic() - self._since > _GRACE_S else None

    def _said(self) -> str | None:
        if not self._log.exists():
            return None
        with self._log.open("rb") as source:
            source.seek(self._position)
            for line in source:
                if not line.endswith(b"\n"):
                    break
                self._position += len(line)
                text = _message(line.decode(errors="replace"))
                if any(words in text for words in _ENGINE_FAILED):
                    return text[:_SHOWN]
        return None


def last_error(log: Path) -> str:
    """Return the last error that a log names, without its traceback (at most 500 characters), else its last line."""
    causes = [line for line in _tail(log) if _ERROR.match(line)]
    return causes[-1][:_SHOWN] if causes else last_line(log)


def last_line(log: Path) -> str:
    """Return the last line of a log that is not empty, without colours (at most 500 characters)."""
    lines = log.read_text(encoding="utf-8", errors="replace").splitlines()
    said = (Text.from_ansi(line).plain.strip() for line in reversed(lines))
    return next((line[-_SHOWN:] for line in said if line), "it printed nothing")


def _tail(log: Path) -> list[str]:
    lines = log.read_text(encoding="utf-8", errors="replace").splitlines()[-400:]
    return [_message(line) for line in lines]


def _message(line: str) -> str:
    """Return a line of a log without its colours and without what says which process printed it."""
    return _PREFIX.sub("", Text.from_ansi(line).plain.strip())
