"""Let a program go on when nobody reads its output any more."""

from __future__ import annotations

import errno
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any, TextIO

_GONE = (errno.EPIPE, errno.EIO)  # of a pipe, such as `| tee log`, and of a terminal that was closed


class LastingOutput:
    """A stream like `stream`, of a program that is to finish whether its output is read or not.

    When the reader has gone, this is said once on stderr, and what is written from then on is dropped.
    """

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream

    def write(self, text: str) -> int:
        """Write `text`, and return its length."""
        with self._going_on():
            return self._stream.write(text)
        return len(text)

    def flush(self) -> None:
        """Write what is buffered."""
        with self._going_on():
            self._stream.flush()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)

    @contextmanager
    def _going_on(self) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            if error.errno not in _GONE:
                raise
            nowhere = os.open(os.devnull, os.O_WRONLY)
            os.dup2(nowhere, self._stream.fileno())  # the buffer too goes there, also when Python ends
            os.close(nowhere)
            with suppress(OSError):
                print("Nobody reads the output of this run any more; it goes on without.", file=sys.stderr, flush=True)
