"""Out of memory: recognise the errors, end a process that gets no more, count processes that the kernel killed."""

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
# The words of torch, CUDA, oneDNN and Python's threads (whose stacks need memory) in a RuntimeError, of torch's
# bindings in a SystemError, of the loader of shared libraries in an ImportError.
_WORDS = ("allocate memory", "out of memory", "bad_alloc", "could not create a primitive", "can't start new thread",
          "error return without exception set", "failed to map segment")  # fmt: skip
_KINDS = (RuntimeError, SystemError, ImportError)


def is_memory_error(error: BaseException) -> bool:
    """Decide whether `error` means that this process or its GPU got no more memory."""
    if isinstance(error, OSError):
        return error.errno == errno.ENOMEM
    words = str(error)
    return isinstance(error, MemoryError) or (isinstance(error, _KINDS) and any(w in words for w in _WORDS))


@contextmanager
def named_memory_errors() -> Iterator[None]:
    """Raise a TrainingError in place of any error that means out of memory."""
    try:
        yield
    except SqlAgentError:
        raise
    except (MemoryError, OSError, *_KINDS) as error:
        if not is_memory_error(error):
            raise
        said = str(error).splitlines()
        raise TrainingError(
            f"the process that trains got no more memory{f': {said[0]}' if said else ''}", hint=MORE_MEMORY
        ) from error


@contextmanager
def ends_without_memory() -> Iterator[None]:
    """End this process with exit code OUT_OF_MEMORY, without a traceback, for an error that means out of memory."""
    try:
        yield
    except Exception as error:
        if is_memory_error(error):
            os._exit(OUT_OF_MEMORY)
        raise


def end_when_ignored() -> None:
    """End this process with exit code OUT_OF_MEMORY where Python can only ignore a MemoryError.

    That is in a destructor or in a thread: a thread that never started is waited for without end, and the end of
    another goes unnoticed.
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
    """Return how many processes of this host the kernel killed because memory ran out; 0 where that is unknown."""
    try:
        counters = Path("/proc/vmstat").read_text(encoding="ascii").splitlines()
    except OSError:
        return 0
    return next((int(line.split()[1]) for line in counters if line.startswith("oom_kill ")), 0)


def how_killed(code: int, kills_before: int) -> str:
    """Return what killed a process whose exit code is `code`, a negative signal: "was killed by SIGKILL".

    `kills_before` is the value of `memory_kills` before the process died.
    """
    if code == -signal.SIGKILL and memory_kills() > kills_before:
        return "was killed by the kernel, because memory ran out"
    return f"was killed by {signal.Signals(-code).name}"


def _end_if_memory(kind: type[BaseException] | None) -> None:
    if kind is not None and issubclass(kind, MemoryError):
        os._exit(OUT_OF_MEMORY)
