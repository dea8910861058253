"""Import large packages without paying for them twice."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def without_gc() -> Iterator[None]:
    """What is imported inside is never looked at by the garbage collector, now or later.

    Modules live until the end. Looking through their objects again and again took half of the time that importing
    agent-lightning takes, and would copy the pages that the runners share with their parent (see `gc.freeze`).
    """
    gc.disable()
    try:
        yield
    finally:
        gc.freeze()
        gc.enable()
