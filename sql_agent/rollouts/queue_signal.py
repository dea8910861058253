"""Wake a runner process when a rollout is queued, so that it need not poll the store."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import socket
from collections.abc import Callable


class QueueSignal:
    """Wakes `receivers` processes, which are numbered from 0; create it before they are forked."""

    def __init__(self, receivers: int) -> None:
        self._pairs = [socket.socketpair() for _ in range(receivers)]
        for end in itertools.chain(*self._pairs):
            end.setblocking(False)
        self._turn = itertools.cycle(self._pairs)

    def notify(self) -> None:
        """Wake one receiver; the receivers take turns."""
        with contextlib.suppress(BlockingIOError):  # its buffer is full of signals, so it will wake anyway
            next(self._turn)[0].send(b"!")

    def listen(self, receiver: int, callback: Callable[[], object]) -> None:
        """Call `callback` on this event loop when `receiver` was signalled, once for many signals."""
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
