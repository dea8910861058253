"""Wake the event loop of another process, so that it need not poll."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import socket
from collections.abc import Callable


class Notifier:
    """Wakes `receivers` processes, which are numbered from 0; create it before they are forked."""

    def __init__(self, receivers: int) -> None:
        self._pairs = [socket.socketpair() for _ in range(receivers)]
        for end in itertools.chain(*self._pairs):
            end.setblocking(False)
        self._turn = itertools.cycle(self._pairs)

    def notify(self) -> None:
        """Wake one receiver; the receivers take turns."""
        with contextlib.suppress(BlockingIOError):  # its buffer is full of notifications, so it will wake anyway
            next(self._turn)[0].send(b"!")

    def listen(self, receiver: int, callback: Callable[[], object]) -> None:
        """Call `callback` on this event loop when `receiver` was notified, once for many notifications."""
        end = self._pairs[receiver % len(self._pairs)][1]

        def read() -> None:
            with contextlib.suppress(BlockingIOError):
                end.recv(4096)
            callback()

        asyncio.get_running_loop().add_reader(end, read)

    def close(self) -> None:
        """Close this process's ends; those of the processes forked from it stay open."""
        for end in itertools.chain(*self._pairs):
            end.close()
