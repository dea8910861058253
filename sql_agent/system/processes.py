"""End child processes with their parent, see which are stopped, and tell how much time they used."""

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
    """Return the processor time that process `pid` has used; where only Linux would know, the time that passed.

    A process that has ended has used none.
    """
    if not sys.platform.startswith("linux"):
        return time.monotonic()
    try:
        return time.clock_gettime((~pid << 3) | 2)  # the number of the process's clock, as clock_getcpuclockid makes it
    except OSError:
        return 0.0


def go_on(pid: int) -> None:
    """Continue the child `pid` where a signal has stopped it, because a stopped process cannot end when it is asked."""
    with suppress(ProcessLookupError):
        os.kill(pid, signal.SIGCONT)


def stopped_or_continued(pid: int) -> signal.Signals | None:
    """Return the signal that stopped the child `pid`, or SIGCONT when it goes on; None when nothing changed.

    Linux only; elsewhere always None. The status of a child that ended stays for whoever waits for it.
    """
    if not sys.platform.startswith("linux"):
        return None
    try:
        seen = os.waitid(os.P_PID, pid, os.WSTOPPED | os.WCONTINUED | os.WNOHANG)
    except ChildProcessError:  # it has ended
        return None
    if seen is None:
        return None
    return signal.SIGCONT if seen.si_code == os.CLD_CONTINUED else signal.Signals(seen.si_status)
