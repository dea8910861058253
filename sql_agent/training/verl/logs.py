"""Read what verl and its processes printed: the last line, the error that ended it, the failure of vLLM."""

from __future__ import annotations

import re
import time
from pathlib import Path

from rich.text import Text

from sql_agent.system.growing_file import GrowingFile

_SHOWN = 500  # characters of a line
_SEARCHED = 400  # lines at the end of a log that may hold the error that ended its process
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
        self._log = GrowingFile(log, position=log.stat().st_size if log.exists() else 0)
        self._cause: str | None = None
        self._since = 0.0

    def failure(self) -> str | None:
        """Return what vLLM said of its failure, once verl has had ten seconds to end because of it; None before."""
        if self._cause is None and (cause := self._said()):
            self._cause, self._since = cause, time.monotonic()
        return self._cause if time.monotonic() - self._since > _GRACE_S else None

    def _said(self) -> str | None:
        for line in self._log.new():
            text = line.decode(errors="replace")
            if any(words in text for words in _ENGINE_FAILED):
                return _message(text)[:_SHOWN]
        return None


def last_error(log: Path) -> str:
    """Return the last error that a log names, without its traceback (at most 500 characters), else its last line."""
    causes = [text for line in _lines(log)[-_SEARCHED:] if _ERROR.match(text := _message(line))]
    return causes[-1][:_SHOWN] if causes else last_line(log)


def last_line(log: Path) -> str:
    """Return the last line of a log that is not empty, without colours (at most 500 characters)."""
    said = map(_plain, reversed(_lines(log)))
    return next((line[-_SHOWN:] for line in said if line), "it printed nothing")


def _lines(log: Path) -> list[str]:
    return log.read_text(encoding="utf-8", errors="replace").splitlines()


def _plain(line: str) -> str:
    """Return a line of a log without its colours."""
    return Text.from_ansi(line).plain.strip()


def _message(line: str) -> str:
    """Return a line of a log without its colours and without what says which process printed it."""
    return _PREFIX.sub("", _plain(line))
