"""Query the resources of this machine: cores, memory, disk space, open files and GPUs."""

from __future__ import annotations

import os
import resource
import shutil
import subprocess
from pathlib import Path

_CGROUPS = ("/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory/memory.limit_in_bytes")


def usable_cores() -> int:
    """Return the number of processor cores that this process may use, within the limits of containers and taskset."""
    if hasattr(os, "sched_getaffinity"):  # not on macOS
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def available_memory() -> int | None:
    """Return the bytes of memory available to this process, within its container's limit; None if unknown."""
    try:
        lines = Path("/proc/meminfo").read_text(encoding="ascii").splitlines()
    except OSError:
        return None
    kilobytes = next((int(line.split()[1]) for line in lines if line.startswith("MemAvailable:")), None)
    if kilobytes is None:
        return None
    limits = [Path(path).read_text(encoding="ascii").strip() for path in _CGROUPS if Path(path).exists()]
    return min([kilobytes * 1024, *(int(limit) for limit in limits if limit.isdigit())])


def free_disk(path: Path) -> int:
    """Return the free bytes of the disk that contains `path`, which need not exist."""
    return shutil.disk_usage(nearest_existing(path)).free


def free_shown(path: Path) -> str:
    """Return what is free on the disk that contains `path`, such as "1.2 GB are free" or "no inodes are free"."""
    disk = os.statvfs(nearest_existing(path))
    if disk.f_files and not disk.f_favail:
        return "no inodes are free: the disk has as many files as it can have"
    return f"{shown_size(free_disk(path))} are free"


def nearest_existing(path: Path) -> Path:
    """Return the first of `path` and its parents that exists."""
    return next(each for each in (path.absolute(), *path.absolute().parents) if each.exists())


def shown_size(count: int) -> str:
    """Format `count` bytes for people, such as "0.3 GB" or "12.0 MB"."""
    return f"{count / 1e9:.1f} GB" if count >= 1e8 else f"{count / 1e6:.1f} MB"


def raise_open_files(wanted: int) -> int:
    """Raise this process's limit of open files to `wanted`, or as far as allowed, and return at most `wanted`."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    allowed = wanted if hard == resource.RLIM_INFINITY else min(wanted, hard)
    if soft != resource.RLIM_INFINITY and soft < allowed:
        resource.setrlimit(resource.RLIMIT_NOFILE, (allowed, hard))
        soft = allowed
    return wanted if soft == resource.RLIM_INFINITY else soft


def gpu_names() -> list[str]:
    """Return the names of the GPUs, as nvidia-smi lists them; empty without nvidia-smi."""
    return _nvidia_smi("name")


def gpu_memory() -> tuple[int, int] | None:
    """Return the total and the free bytes of the GPU with the least free memory; None without nvidia-smi.

    Only the GPUs in CUDA_VISIBLE_DEVICES count, if that variable is set.
    """
    visible = os.environ.get("CUDA_VISIBLE_DEVICES")
    sizes = [line.split(",") for line in _nvidia_smi("memory.total,memory.free", *(["-i", visible] if visible else []))]
    of_gpus = [(int(total) << 20, int(free) << 20) for total, free in sizes if free.strip().isdigit()]
    return min(of_gpus, key=lambda size: size[1], default=None)


def _nvidia_smi(query: str, *options: str) -> list[str]:
    """Return a line for each GPU with the values of `query`; empty when nvidia-smi is missing or fails."""
    command = shutil.which("nvidia-smi")
    if command is None:
        return []
    try:
        shown = subprocess.run(  # noqa: S603
            [command, f"--query-gpu={query}", "--format=csv,noheader,nounits", *options],
            capture_output=True, text=True, check=False, timeout=20,
        )  # fmt: skip
    except (OSError, subprocess.TimeoutExpired):  # a damaged driver makes it hang
        return []
    return shown.stdout.splitlines() if shown.returncode == 0 else []
