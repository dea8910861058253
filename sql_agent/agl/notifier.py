"""Wake the event loop of another process, so that it need not poll."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import socket


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

    async def wait(self, receiver: int, timeout_s: float) -> None:
        """Wait until `receiver` was notified since its last wait, or for `timeout_s` seconds."""
        end = self._pairs[receiver % len(self._pairs)][1]
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(asyncio.get_running_loop().sock_recv(end, 4096), timeout_s)

    def close(self) -> None:
        """Close this process's ends; those of the processes forked from it stay open."""
        for end in itertools.chain(*self._pairs):
            end.close()
