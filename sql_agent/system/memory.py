"""Name the errors of memory that ran out, end processes that get none, count those that the kernel killed for it."""

from __future__ import annotations

import errno
import os
import signal
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from sql_agent.errors import SqlAgentError, TrainingError

OUT_OF_MEMORY = errno.ENOMEM  # the exit code of a process that gets no more memory
MORE_MEMORY = "end other programs, or lower train.micro_batch or runner.concurrency; then start it again"
# As torch, CUDA, oneDNN and Python's threads say it in a RuntimeError; a thread needs memory for its stack.
_WORDS = ("allocate memory", "out of memory", "bad_alloc", "could not create a primitive", "can't start new thread")


def is_memory_error(error: BaseException) -> bool:
    """Return whether `error` says that this process or its GPU got no more memory."""
    if isinstance(error, OSError):
        return error.errno == errno.ENOMEM
    words = str(error)
    return isinstance(error, MemoryError) or (isinstance(error, RuntimeError) and any(w in words for w in _WORDS))


@contextmanager
def named_memory_errors() -> Iterator[None]:
    """Raise a TrainingError for an error of memory that ran out, wherever it came from."""
    try:
        yield
    except SqlAgentError:
        raise
    except (MemoryError, RuntimeError, OSError) as error:
        if not is_memory_error(error):
            raise
        said = str(error).splitlines()
        raise TrainingError(
            f"the process that trains got no more memory{f': {said[0]}' if said else ''}", hint=MORE_MEMORY
        ) from error


@contextmanager
def ends_without_memory() -> Iterator[None]:
    """End this process with the exit code OUT_OF_MEMORY, without a traceback, for an error of memory that ran out."""
    try:
        yield
    except Exception as error:
        if is_memory_error(error):
            os._exit(OUT_OF_MEMORY)
        raise


def end_when_ignored() -> None:
    """End this process with the exit code OUT_OF_MEMORY where Python could only ignore that memory ran out.

    A thread that could not start for want of memory is waited for for ever, and one that ended is missed by nobody.
    """
    ignore, end_of_thread = sys.unraisablehook, threading.excepthook

    def unraisable(given: Any) -> None:
        _end_if_memory(given.exc_type)
        ignore(given)

    def in_thread(given: Any) -> None:
        _end_if_memory(given.exc_type)
        end_of_thread(given)

    sys.unraisablehook, threading.excepthook = unraisable, in_thread


def memory_kills() -> int:
    """Return how many processes of this host the kernel has killed for want of memory; 0 where it does not say."""
    try:
        counters = Path("/proc/vmstat").read_text(encoding="ascii").splitlines()
    except OSError:
        return 0
    return next((int(line.split()[1]) for line in counters if line.startswith("oom_kill ")), 0)


def how_killed(code: int, kills_before: int) -> str:
    """Return what killed a process with the exit code `code`, a negative signal, as a participle.

    `kills_before` are the `memory_kills` from before it died.
    """
    if code == -signal.SIGKILL and memory_kills() > kills_before:
        return "was killed by the kernel, because memory ran out"
    return f"was killed by {signal.Signals(-code).name}"


def _end_if_memory(kind: type[BaseException] | None) -> None:
    if kind is not None and issubclass(kind, MemoryError):
        os._exit(OUT_OF_MEMORY)
