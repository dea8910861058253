"""End child processes with their parent, continue stopped ones, and measure their processor time."""

from __future__ import annotations

import ctypes
import os
import signal
import sys
import time
from contextlib import suppress

_PR_SET_PDEATHSIG = 1


def die_with_parent() -> None:
    """Ask the kernel to send this process SIGTERM when its parent dies (Linux only; elsewhere nothing happens)."""
    if not sys.platform.startswith("linux"):
        return
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGTERM, 0, 0, 0)


def cpu_seconds(pid: int) -> float:
    """Return the processor seconds that process `pid` has used, 0 when it has ended; not on Linux: the clock."""
    if not sys.platform.startswith("linux"):
        return time.monotonic()
    try:
        return time.clock_gettime((~pid << 3) | 2)  # the clock id that clock_getcpuclockid returns
    except OSError:
        return 0.0


def go_on(pid: int) -> None:
    """Continue the child `pid` where a signal has stopped it, because a stopped process cannot end when it is asked."""
    with suppress(ProcessLookupError):
        os.kill(pid, signal.SIGCONT)
