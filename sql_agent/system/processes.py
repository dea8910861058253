"""End child processes when their parent dies, even when it is killed with SIGKILL."""

from __future__ import annotations

import ctypes
import os
import signal
import sys

_PR_SET_PDEATHSIG = 1


def die_with_parent_after_fork() -> None:
    """Have every child that is forked from now on get SIGTERM when this process dies (Linux only)."""
    os.register_at_fork(after_in_child=die_with_parent)


def die_with_parent() -> None:
    """Ask the kernel to send this process SIGTERM when its parent dies (Linux only; elsewhere nothing happens)."""
    if not sys.platform.startswith("linux"):
        return
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGTERM, 0, 0, 0)
