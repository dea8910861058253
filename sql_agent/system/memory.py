"""Handle running out of memory: recognise errors, end the process, and count processes that the kernel killed."""

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

OUT_OF_MEMORY = errno.ENOMEM  # exit code of a process that ran out of memory
MORE_MEMORY = "end other programs, or lower train.micro_batch or runner.concurrency; then start it again"
# Parts of error messages: RuntimeErrors of torch, CUDA, oneDNN and Python's threads (whose stacks need memory),
# SystemErrors of torch's bindings, and ImportErrors of the loader of shared libraries.
_WORDS = ("allocate memory", "out of memory", "bad_alloc", "could not create a primitive", "can't start new thread",
          "error return without exception set", "failed to map segment")  # fmt: skip
_KINDS = (RuntimeError, SystemError, ImportError)


def is_memory_error(error: BaseException) -> bool:
    """Return whether `error` means that this process or its GPU is out of memory."""
    if isinstance(error, OSError):
        return error.errno == errno.ENOMEM
    words = str(error)
    return isinstance(error, MemoryError) or (isinstance(error, _KINDS) and any(w in words for w in _WORDS))


@contextmanager
def named_memory_errors() -> Iterator[None]:
    """Raise TrainingError instead of an error that means out of memory."""
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
    """Exit with the code OUT_OF_MEMORY and no traceback after an error in the block that means out of memory."""
    try:
        yield
    except Exception as error:
        if is_memory_error(error):
            os._exit(OUT_OF_MEMORY)
        raise


def end_when_ignored() -> None:
    """Install hooks that exit with the code OUT_OF_MEMORY after a MemoryError in a destructor or a thread.

    Python only prints these errors, and the process would wait for ever for a thread that never started.
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
    """Return how many processes on this host the kernel has killed because memory ran out; 0 if unknown."""
    try:
        counters = Path("/proc/vmstat").read_text(encoding="ascii").splitlines()
    except OSError:
        return 0
    return next((int(line.split()[1]) for line in counters if line.startswith("oom_kill ")), 0)


def how_killed(code: int, kills_before: int) -> str:
    """Describe the death of a process by its exit code, a negative signal, such as "was killed by SIGKILL".

    `kills_before` is the result of `memory_kills` from before the death.
    """
    if code == -signal.SIGKILL and memory_kills() > kills_before:
        return "was killed by the kernel, because memory ran out"
    return f"was killed by {signal.Signals(-code).name}"


def _end_if_memory(kind: type[BaseException] | None) -> None:
    if kind is not None and issubclass(kind, MemoryError):
        os._exit(OUT_OF_MEMORY)
