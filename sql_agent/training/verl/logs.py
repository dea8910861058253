"""Convert verl's metrics, and find the last line, the last error and a failure of vLLM in verl's log."""

from __future__ import annotations

import math
import re
import time
from collections.abc import Mapping
from pathlib import Path

from rich.text import Text

from sql_agent.system.files import GrowingFile
from sql_agent.training.step_monitor import update_metrics

_SHOWN = 500  # maximum number of characters of a line that is shown
_SEARCHED = 400  # number of lines at the end of a log that are searched for an error
# Ray and vLLM write a prefix before a line: "(WorkerDict pid=7) (Worker pid=8) ERROR 11-23 15:46:55 [core.py:1] ".
_PREFIX = re.compile(r"^(?:\([^()]*\bpid=[^()]*\)\s*)*(?:[A-Z]+ [\d-]+ [\d:]+ \[[^\]]*\]\s*)?")
_ERROR = re.compile(r"^(?:error:|[\w.]*(?:Error|Exception)\b(?!\())")
# Messages after which vLLM serves no more requests.
_ENGINE_FAILED = ("Worker failed with error", "died unexpectedly, shutting down executor")
_GRACE_S = 10.0  # time limit for verl to end by itself after vLLM failed
_UPDATE_STAGES = ("old_log_prob", "ref", "adv", "update_actor", "update_weights")


class EngineMonitor:
    """Finds a failure of vLLM in the lines that are added to verl's log after the monitor was constructed.

    verl ends when vLLM fails during rollouts, but waits for ever when vLLM fails while receiving new weights.
    """

    def __init__(self, log: Path) -> None:
        self._log = GrowingFile(log, position=log.stat().st_size if log.exists() else 0)
        self._cause: str | None = None
        self._since = 0.0

    def failure(self) -> str | None:
        """Return vLLM's error message if it was found more than 10 s ago, else None."""
        if self._cause is None and (cause := self._logged()):
            self._cause, self._since = cause, time.monotonic()
        return self._cause if time.monotonic() - self._since > _GRACE_S else None

    def _logged(self) -> str | None:
        for line in self._log.new():
            text = line.decode(errors="replace")
            if any(words in text for words in _ENGINE_FAILED):
                return _message(text)[:_SHOWN]
        return None


def last_error(log: Path) -> str:
    """Return the last error message in a log, or the last line of a log without one (at most 500 characters)."""
    causes = [text for line in _lines(log)[-_SEARCHED:] if _ERROR.match(text := _message(line))]
    return causes[-1][:_SHOWN] if causes else last_line(log)


def ran_out_in_update(log: Path) -> bool:
    """Return whether the last error in a log says that an update ran out of the GPU's memory."""
    return "out of memory" in last_error(log) and any("update_actor" in line for line in _lines(log)[-_SEARCHED:])


def last_line(log: Path) -> str:
    """Return the last non-empty line of a log (at most its last 500 characters), with its colour codes removed."""
    lines = map(_plain, reversed(_lines(log)))
    return next((line[-_SHOWN:] for line in lines if line), "it printed nothing")


def step_metrics(values: Mapping[str, float]) -> dict[str, float]:
    """Return verl's metrics `values` of a step that are finite numbers, and the `update_metrics` computed from them."""
    known = {key: float(v) for key, v in values.items() if isinstance(v, (int, float)) and math.isfinite(v)}
    update_s = sum(known.get(f"timing_s/{stage}", 0.0) for stage in _UPDATE_STAGES)
    figures = {"grad_norm": known["actor/grad_norm"]} if "actor/grad_norm" in known else {}
    return known | update_metrics(known.get("timing_s/gen", 0.0), update_s, figures)


def _lines(log: Path) -> list[str]:
    return log.read_text(encoding="utf-8", errors="replace").splitlines()


def _plain(line: str) -> str:
    return Text.from_ansi(line).plain.strip()


def _message(line: str) -> str:
    """Remove the colours and the prefix of Ray and vLLM from a line."""
    return _PREFIX.sub("", _plain(line))
