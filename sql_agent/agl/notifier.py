"""Wakes the event loop of another process, so that it need not poll."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import socket


class Notifier:
    """Made before the processes that listen are forked; `listeners` is how many they are, numbered from 0."""

    def __init__(self, listeners: int) -> None:
        self._pairs = [socket.socketpair() for _ in range(listeners)]
        for end in itertools.chain(*self._pairs):
            end.setblocking(False)
        self._turn = itertools.cycle(self._pairs)

    def notify(self) -> None:
        """Wake one listener; they take turns."""
        with contextlib.suppress(BlockingIOError):  # it was rung often enough, and will wake
            next(self._turn)[0].send(b"!")

    async def wait(self, listener: int, timeout_s: float) -> None:
        """Return when `listener` was rung since its last wait, or after `timeout_s` seconds."""
        ear = self._pairs[listener % len(self._pairs)][1]
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(asyncio.get_running_loop().sock_recv(ear, 4096), timeout_s)
