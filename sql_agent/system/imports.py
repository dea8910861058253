"""Import large packages without the cost of garbage collection."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def without_gc() -> Iterator[None]:
    """Exclude all objects that are created inside the context, such as imported modules, from garbage collection.

    Modules stay until the process ends. Collections that examine their objects took half of the time of importing
    agent-lightning, and would copy the memory pages that the runners share with their parent (see `gc.freeze`).
    """
    gc.disable()
    try:
        yield
    finally:
        gc.freeze()
        gc.enable()
