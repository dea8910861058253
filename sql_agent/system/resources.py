"""Measure this machine's cores, memory, disk and GPUs, and handle errors that mean out of memory."""

from __future__ import annotations

import errno
import os
import resource
import shutil
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from sql_agent.errors import SqlAgentError, TrainingError

_CGROUPS = ("/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory/memory.limit_in_bytes")
OUT_OF_MEMORY = errno.ENOMEM  # exit code of a process that ran out of memory
MORE_MEMORY = "end other programs, or lower train.micro_batch or runner.concurrency; then start the run again"
# Parts of messages that mean out of memory: in RuntimeErrors of torch, CUDA, oneDNN and Python's threads (whose stacks
# need memory), in SystemErrors of torch's bindings, and in ImportErrors of the loader of shared libraries.
_WORDS = ("allocate memory", "out of memory", "bad_alloc", "could not create a primitive", "can't start new thread",
          "error return without exception set", "failed to map segment")  # fmt: skip
_KINDS = (RuntimeError, SystemError, ImportError)


def usable_cores() -> int:
    """Return the number of processor cores that this process may use, as limited by a container or taskset."""
    if hasattr(os, "sched_getaffinity"):  # not on macOS
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def available_memory() -> int | None:
    """Return the bytes of memory that this process can still get, at most its container's limit; None if unknown."""
    kilobytes = _counter("/proc/meminfo", "MemAvailable:")
    if kilobytes is None:
        return None
    limits = [Path(path).read_text(encoding="ascii").strip() for path in _CGROUPS if Path(path).exists()]
    return min([kilobytes * 1024, *(int(limit) for limit in limits if limit.isdigit())])


def free_disk(path: Path) -> int:
    return shutil.disk_usage(nearest_existing(path)).free


def free_shown(path: Path) -> str:
    """Return the free space of the disk of `path` in words: "1.2 GB are free" or "no inodes are free: …"."""
    disk = os.statvfs(nearest_existing(path))
    if disk.f_files and not disk.f_favail:
        return "no inodes are free: the disk has as many files as it can have"
    return f"{shown_size(free_disk(path))} are free"


def nearest_existing(path: Path) -> Path:
    return next(each for each in (path.absolute(), *path.absolute().parents) if each.exists())


def shown_size(count: int) -> str:
    """Format `count` bytes for people, such as "0.3 GB" or "12.0 MB"."""
    return f"{count / 1e9:.1f} GB" if count >= 1e8 else f"{count / 1e6:.1f} MB"


def raise_open_files(wanted: int) -> int:
    """Raise the limit of open files to `wanted`, or as far as allowed; return the limit (`wanted` if there is none)."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    allowed = wanted if hard == resource.RLIM_INFINITY else min(wanted, hard)
    if soft != resource.RLIM_INFINITY and soft < allowed:
        resource.setrlimit(resource.RLIMIT_NOFILE, (allowed, hard))
        soft = allowed
    return wanted if soft == resource.RLIM_INFINITY else soft


def gpu_names() -> list[str]:
    """Return the names of the GPUs that this process may use; empty if nvidia-smi is missing or fails."""
    return _nvidia_smi("name")


def gpu_memory() -> tuple[int, int] | None:
    """Return the total and the free bytes of the usable GPU with the least free memory; None without a GPU."""
    sizes = [line.split(",") for line in _nvidia_smi("memory.total,memory.free")]
    of_gpus = [(int(total) << 20, int(free) << 20) for total, free in sizes if free.strip().isdigit()]
    return min(of_gpus, key=lambda size: size[1], default=None)


def _nvidia_smi(query: str) -> list[str]:
    """Return a line with the values of `query` for each GPU in CUDA_VISIBLE_DEVICES, by default all GPUs."""
    command, visible = shutil.which("nvidia-smi"), os.environ.get("CUDA_VISIBLE_DEVICES")
    if command is None or visible == "":
        return []
    only = [] if visible is None else ["-i", visible]
    try:
        shown = subprocess.run(  # noqa: S603
            [command, f"--query-gpu={query}", "--format=csv,noheader,nounits", *only],
            capture_output=True, text=True, check=False, timeout=20,
        )  # fmt: skip
    except (OSError, subprocess.TimeoutExpired):  # with a damaged driver, nvidia-smi hangs
        return []
    return shown.stdout.splitlines() if shown.returncode == 0 else []


def is_memory_error(error: BaseException) -> bool:
    if isinstance(error, OSError):
        return error.errno == errno.ENOMEM
    words = str(error)
    return isinstance(error, MemoryError) or (isinstance(error, _KINDS) and any(w in words for w in _WORDS))


@contextmanager
def named_memory_errors() -> Iterator[None]:
    """Raise TrainingError in place of an error of the block that means out of memory."""
    try:
        yield
    except SqlAgentError:
        raise
    except (MemoryError, OSError, *_KINDS) as error:
        if not is_memory_error(error):
            raise
        said = str(error).splitlines()
        raise TrainingError(
            f"the training process ran out of memory{f': {said[0]}' if said else ''}", hint=MORE_MEMORY
        ) from error


@contextmanager
def ends_without_memory() -> Iterator[None]:
    """After an error of the block that means out of memory, exit with the code OUT_OF_MEMORY and no traceback."""
    try:
        yield
    except Exception as error:
        if is_memory_error(error):
            os._exit(OUT_OF_MEMORY)
        raise


def end_when_ignored() -> None:
    """Install hooks that exit with the code OUT_OF_MEMORY after a MemoryError in a destructor or a thread.

    Python only prints such an error, and this process would then wait for ever for a thread that never started.
    """

    def ending(report: Callable[[Any], object]) -> Callable[[Any], object]:
        def hook(given: Any) -> None:
            if given.exc_type is not None and issubclass(given.exc_type, MemoryError):
                os._exit(OUT_OF_MEMORY)
            report(given)

        return hook

    sys.unraisablehook, threading.excepthook = ending(sys.unraisablehook), ending(threading.excepthook)


def memory_kills() -> int:
    """Return how many processes of this host the kernel has killed because memory ran out; 0 if unknown."""
    return _counter("/proc/vmstat", "oom_kill ") or 0


def _counter(path: str, name: str) -> int | None:
    """Return the number after `name` in the kernel's file `path`; None without such a file or name."""
    lines = Path(path).read_text(encoding="ascii").splitlines() if Path(path).exists() else []
    return next((int(line.split()[1]) for line in lines if line.startswith(name)), None)


def how_killed(code: int, kills_before: int) -> str:
    """Return how a process died in words, such as "was killed by SIGKILL"; `code` is the negative signal.

    `kills_before` is the result of `memory_kills` before the death.
    """
    if code == -signal.SIGKILL and memory_kills() > kills_before:
        return "was killed by the kernel, because memory ran out"
    return f"was killed by {signal.Signals(-code).name}"
