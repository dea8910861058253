"""Models that are made once and kept between runs."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from filelock import FileLock, Timeout

_LOOK_S = 0.2


def is_complete(folder: Path) -> bool:
    """Whether `folder` holds a model; one appears in a single step, so it holds all of it."""
    return (folder / "config.json").exists()


@contextmanager
def build_once(folder: Path, stopped: Callable[[], bool] = lambda: False) -> Iterator[bool]:
    """Yields whether `folder` is ours to make; other processes that want it wait until the context ends.

    False when it is there, made by another process meanwhile perhaps, or when `stopped` said yes while that one was
    still at it; `is_complete` tells which.
    """
    if is_complete(folder):  # without a lock, because such a cache may be one that can only be read
        yield False
        return
    folder.parent.mkdir(parents=True, exist_ok=True)
    lock = FileLock(f"{folder}.lock")
    while not (lock.is_locked or stopped()):
        with suppress(Timeout):
            lock.acquire(timeout=_LOOK_S)
    try:
        yield lock.is_locked and not is_complete(folder)
    finally:
        lock.release()
