"""Build a model folder once, and keep it between runs."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from filelock import FileLock, Timeout

_POLL_S = 0.2


def is_complete(folder: Path) -> bool:
    """Return whether `folder` holds a complete model; such a folder is written atomically, so never holds a part."""
    return (folder / "config.json").exists()


@contextmanager
def build_once(folder: Path, stopped: Callable[[], bool] = lambda: False) -> Iterator[bool]:
    """Yield True when the caller must build `folder`; other processes wait for it until the context ends.

    Yields False when the folder is complete, and also when `stopped` returned true while another process was building
    it: call `is_complete` to distinguish the two.
    """
    if is_complete(folder):  # without a lock, because the cache may be read-only
        yield False
        return
    folder.parent.mkdir(parents=True, exist_ok=True)
    lock = FileLock(f"{folder}.lock")
    while not (lock.is_locked or stopped()):
        with suppress(Timeout):
            lock.acquire(timeout=_POLL_S)
    try:
        yield lock.is_locked and not is_complete(folder)
    finally:
        lock.release()
